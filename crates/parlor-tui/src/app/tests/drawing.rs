//! Screens of every size, in ASCII, and with hostile text.

use super::*;

#[test]
fn the_conversation_is_drawn_at_every_width() {
    let mut script = busy();
    script.type_text("Also check the Windows job");
    screen!(script, 120 x 36, "conversation-120");
    screen!(script, 80 x 24, "conversation-80");
    screen!(script, 44 x 20, "conversation-44");
}

#[test]
fn the_same_screen_is_drawn_in_ascii() {
    let mut script = busy();
    script.app.look.theme.is_ascii = true;
    let screen = script.screen(120, 36);
    // The titles of sessions are foreign text.
    let frame: String = screen.replace("請求書の丸め誤差を直す", "").replace('█', "");
    assert!(frame.lines().filter(|line| !line.contains("codex")).all(str::is_ascii), "{screen}");
}

#[test]
fn the_header_says_how_many_clients_are_attached() {
    let clients = |list: &str| {
        format!(r#"{{"sessionUpdate":"session_info_update","_meta":{{"parlor/clients":{list}}}}}"#)
    };
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.changed(&[&clients(r#"[{"client":1,"role":"driver"}]"#)]);
    assert!(!script.screen(120, 24).contains("client"));
    script.changed(&[&clients(
        r#"[{"client":1,"role":"driver"},{"client":2,"role":"observer","name":"zed"}]"#,
    )]);
    let screen = script.screen(120, 24);
    assert!(screen.lines().next().unwrap().trim_end().ends_with("2 clients"), "{screen}");
    assert!(!script.screen(40, 24).contains("clients"));
}

#[test]
fn the_help_lists_all_keys() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("F1");
    screen!(script, 120 x 36, "help-120");
    screen!(script, 80 x 24, "help-80");
    script.press("/");
    script.type_text("fork here");
    let screen = script.screen(80, 24);
    assert!(screen.contains("fork here") && !screen.contains("half a page"), "{screen}");
}

#[test]
fn the_help_is_readable_at_every_width() {
    for (width, height) in [(40, 10), (60, 20), (80, 24), (110, 30), (120, 36)] {
        let mut script = Script::open(&[PROMPT, IDLE]);
        script.press("F1");
        let mut all = String::new();
        for _ in 0..20 {
            all += &script.screen(width, height);
            script.press("PgDn");
        }
        for row in KeyMap::default().help() {
            for word in row.keys.split_whitespace().chain(row.text.split_whitespace()) {
                assert!(all.split_whitespace().any(|shown| shown == word), "{width}: {row:?} lacks {word}");
            }
        }
    }
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("F1");
    screen!(script, 40 x 24, "help-40");
    // Keys that need more columns have their text below.
    script.app.keys = KeyMap::with_settings([("anywhere", "inbox", "Ctrl-T Alt-Shift-F12 Alt-i")]).unwrap();
    let screen = script.screen(40, 60);
    assert!(
        screen.contains("\n Ctrl-T  Alt-Shift-F12  Alt-i\n                   inbox: requests"),
        "{screen}"
    );
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.screen(39, 10).lines().next(), Some("40x10 at least"));
    assert_eq!(script.screen(20, 3).lines().next(), Some("40x10 at least"));
    assert!(script.screen(80, 24).contains("Fix flaky port test"));
}

#[test]
fn every_screen_fits_every_size() {
    let mut script = busy();
    script.event(Event::Requests(requests(&[COMMAND_REQUEST, FORM_REQUEST]), Vec::new()));
    for keys in [
        "Esc",
        "Tab",
        "Esc",
        "Tab Tab",
        "Esc",
        "Ctrl-T",
        "Esc",
        "Ctrl-O",
        "Esc",
        "Ctrl-F",
        "Esc",
        "Shift-Tab",
        "Esc",
        "F1",
        "Esc",
        "Ctrl-P",
    ] {
        script.wait(1000);
        script.press(keys);
        for (width, height) in
            [(40, 10), (41, 11), (59, 12), (60, 20), (80, 24), (99, 30), (100, 30), (200, 60)]
        {
            let screen = script.screen(width, height);
            assert_eq!(screen.lines().count(), usize::from(height));
        }
    }
}

#[test]
fn hostile_text_of_every_kind_draws_no_control_characters() {
    const HOSTILE: &str = r"x\u001b[2J\u001b]0;t\u0007\u009b1m\r\b\u202e\u2066\u200fy";
    let updates: Vec<String> = [PROMPT, ANSWER, TOOL, OPTIONS, QUEUE, RUNNING]
        .iter()
        .map(|update| {
            update
                .replace("the", HOSTILE)
                .replace("parlor-server", HOSTILE)
                .replace("asks", HOSTILE)
                .replace("entry", HOSTILE)
        })
        .collect();
    let sessions: Vec<String> = SESSIONS
        .iter()
        .map(|row| row.replace("port", HOSTILE).replace("claude", HOSTILE).replace("opus", HOSTILE))
        .collect();
    let mut script =
        Script::connected(Start::Session("s1".into(), "/home/dev/src/parlor".to_owned()), &refs(&sessions));
    script.opened("s1", &refs(&updates));
    let hostile: Vec<String> = [COMMAND_REQUEST, EDIT_REQUEST, FORM_REQUEST]
        .iter()
        .map(|request| {
            request
                .replace("rm -rf", HOSTILE)
                .replace("git", HOSTILE)
                .replace("Database", HOSTILE)
                .replace("codex", HOSTILE)
                .replace("schema for", HOSTILE)
                .replace("Bash", HOSTILE)
        })
        .collect();
    script.event(Event::Requests(requests(&refs(&hostile)), Vec::new()));
    script.event(Event::Paste("\u{1b}[31mred\u{202e}\u{9b}1m".to_owned()));
    for keys in ["Tab", "Esc", "Tab", "j", "Ctrl-T", "Esc", "Ctrl-O", "Esc", "Shift-Tab", "Esc", "F1"] {
        script.wait(1000);
        script.press(keys);
        for (width, height) in [(40, 10), (80, 24), (120, 40)] {
            let screen = script.screen(width, height);
            let is_harmful = |letter: char| {
                (letter.is_control() && letter != '\n') || crate::clean::is_bidirectional(letter)
            };
            assert!(!screen.contains(is_harmful), "after {keys}: {screen:?}");
        }
    }
    let effects = script.event(Event::Focus(false));
    assert_eq!(effects, []);
}

#[test]
fn the_title_of_the_window_says_what_waits() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    let effects = script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert!(
        effects.contains(&Effect::WindowTitle("! 1 ● Fix flaky port test - parlor".to_owned())),
        "{effects:?}"
    );
}

#[test]
fn the_client_ticks_each_second_only_while_something_counts() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.wait(10_000);
    assert!(script.app.next_tick().unwrap() >= script.now + SignedDuration::from_secs(20));
    script.changed(&[PROMPT, RUNNING]);
    assert!(script.app.next_tick().unwrap() <= script.now + SignedDuration::from_secs(1));
}

#[test]
fn a_message_that_arrives_in_chunks_is_shown() {
    let chunk = |text: &str| {
        format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"c1","content":{{"type":"text","text":"{text}"}}}}"#
        )
    };
    let mut lines = vec![PROMPT.to_owned(), RUNNING.to_owned(), chunk("Hel")];
    let mut script = Script::open(&refs(&lines));
    assert!(script.screen(80, 24).contains("  Hel"), "{}", script.screen(80, 24));
    lines.push(chunk("lo."));
    script.changed(&refs(&lines));
    assert!(script.screen(80, 24).contains("  Hello."), "{}", script.screen(80, 24));
    lines.push(IDLE.to_owned());
    script.changed(&refs(&lines));
    assert!(script.screen(80, 24).contains("  Hello."), "{}", script.screen(80, 24));
}

#[test]
fn the_idle_line_names_the_files_that_the_turn_changed() {
    let edit = |id: &str, path: &str| {
        format!(
            r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","title":"Edit","kind":"edit","status":"completed","content":[{{"type":"diff","changes":[{{"operation":"modify","path":"{path}"}}],"patch":{{"format":"git_patch","text":"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+new\n+newer\n"}}}}]}}"#
        )
    };
    let (one, two) = (edit("e1", "/home/dev/src/parlor/a.rs"), edit("e2", "/home/dev/src/parlor/b.rs"));
    let mut script = Script::open(&[PROMPT, &one, &two, IDLE]);
    let screen = script.screen(80, 24);
    assert!(screen.contains("2 files changed +4 -2"), "{screen}");
    let mut script = Script::open(&[PROMPT, &one, RUNNING]);
    assert!(!script.screen(80, 24).contains("changed"));
}

#[test]
fn a_thought_has_the_time_until_the_turn_went_on() {
    let thought = r#"{"sessionUpdate":"agent_thought","messageId":"th","content":[{"type":"text","text":"two tests"}],"_meta":{"parlor/at":1795000000000}}"#;
    let answer = r#"{"sessionUpdate":"agent_message","messageId":"an","content":[{"type":"text","text":"Done."}],"_meta":{"parlor/at":1795000006400}}"#;
    let mut script = Script::open(&[PROMPT, thought, answer, IDLE]);
    assert!(script.screen(80, 24).contains("Thought 6 s: two tests"), "{}", script.screen(80, 24));
    // A thought after which nothing came has no duration, also not up to the next prompt.
    let later = PROMPT.replace("\"messageId\":\"", "\"messageId\":\"later");
    let mut script = Script::open(&[PROMPT, thought, &later, IDLE]);
    assert!(script.screen(80, 24).contains("Thought: two tests"));
}
