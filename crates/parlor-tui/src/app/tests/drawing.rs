//! Screens of every size, in ASCII, and with hostile text.

use super::*;
use crate::event::Hit;

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

#[test]
fn sessions_can_be_told_apart_in_the_narrowest_picker() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-O");
    let screen = script.screen(40, 24);
    for title in ["Fix flaky port test", "Document the token", "Invoice rounding"] {
        assert!(screen.contains(title), "{screen}");
    }
}

#[test]
fn the_selected_queued_prompt_is_readable_on_a_narrow_screen() {
    let mut script = Script::open(&[PROMPT, QUEUE, RUNNING]);
    script.press("Up");
    let screen = script.screen(44, 20);
    assert!(screen.contains("Then add an entry to CHANGELOG.m"), "{screen}");
    assert!(screen.contains("e edit  w withdraw  s send now"), "{screen}");
}

#[test]
fn the_scopes_of_a_search_are_on_a_narrow_screen() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-F");
    let screen = script.screen(40, 20);
    for text in ["all sessions", "directory", "this session", "Tab scope"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
}

#[test]
fn as_many_hits_as_are_returned_are_not_called_all() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Ctrl-F");
    script.type_text("x");
    script.wait(100);
    let hit = Hit {
        session: "s1".into(),
        title: Clean::default(),
        agent: Clean::default(),
        cwd: String::new(),
        message: Some("a".into()),
        tool_call: None,
        role: Clean::line("user"),
        at: None,
        snippet: Clean::line("x"),
        matches: Vec::new(),
    };
    script.event(Event::Hits { generation: 1, hits: Ok(vec![hit.clone(); 50]), millis: 1 });
    assert!(script.screen(80, 24).contains("the best 50 hits in 1 session"), "{}", script.screen(80, 24));
    script.event(Event::Hits { generation: 1, hits: Ok(vec![hit; 49]), millis: 1 });
    assert!(script.screen(80, 24).contains(" 49 hits in 1 session"));
}

#[test]
fn the_start_screen_wraps_its_directory() {
    let mut script = Script::connected(Start::New, &[]);
    script.app.new_cwd = "/home/dev/src/a-directory-with-a-long-name/and/another/one/inside/of/it".to_owned();
    for width in [40, 100] {
        let screen = script.screen(width, 30);
        let main: Vec<&str> =
            screen.lines().take(8).map(|row| row.split('│').next_back().unwrap().trim()).collect();
        assert!(main.join("").replace(' ', "").contains("/inside/of/it."), "{screen}");
    }
}

#[test]
fn the_list_grows_with_the_screen() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    let long = SESSIONS[1].replace("Axum upgrade", "Axum upgrade with all of its middleware");
    script.event(Event::ListChanged(rows(&[&long]), Vec::new()));
    assert!(!script.screen(120, 24).contains("all of its middleware"));
    assert!(script.screen(240, 24).contains("Axum upgrade with all of its middleware"));
}

#[test]
fn a_note_is_shown_while_a_removal_can_be_taken_back() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Tab Tab x");
    assert!(script.screen(80, 24).contains("Archived \"Fix flaky"));
    script.press("Ctrl-C");
    assert!(script.screen(80, 24).contains("Ctrl-C again detaches"), "{}", script.screen(80, 24));
    script.wait(2_500);
    assert!(script.screen(80, 24).contains("Archived \"Fix flaky"));
}

#[test]
fn thousands_of_sessions_are_drawn_without_delay() {
    let sessions: Vec<String> = (0..2_000)
        .map(|number| {
            format!(
                r#"{{"sessionId":"n{number}","cwd":"/home/dev/{}","title":"number {number}","updatedAt":"2026-11-17T10:{:02}:00Z"}}"#,
                number % 500,
                number % 60
            )
        })
        .collect();
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::ListChanged(rows(&refs(&sessions)), Vec::new()));
    script.press("Tab Tab");
    let started = std::time::Instant::now();
    for _ in 0..30 {
        script.press("j");
        script.screen(120, 36);
    }
    // With work that grows with the square of the sessions this takes many times as long.
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_long_title_leaves_the_mode_in_the_header() {
    let mut script = Script::open(&[PROMPT, OPTIONS, IDLE]);
    let long = SESSIONS[0].replace("Fix flaky port test", &"a long title ".repeat(12));
    script.event(Event::ListChanged(rows(&[&long]), Vec::new()));
    for width in [60, 80, 100, 120] {
        let screen = script.screen(width, 24);
        let header = screen.lines().next().unwrap();
        assert!(header.contains("a long title") && header.contains("mode ask"), "{header}");
    }
    let screen = script.screen(40, 24);
    assert!(screen.starts_with("a long title a long title a long"), "{screen}");
}
