//! The input: prompts, the queue, the history, completion, Esc and Ctrl-C.

use parlor_client::Json;

use super::*;
use crate::event::Failure;

#[test]
fn the_start_screen_offers_agents() {
    let mut script = Script::connected(Start::Latest, &[]);
    screen!(script, 80 x 24, "start-80");
    let effects = script.type_text("fix the test");
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Send(_))).count(), 0);
    let effects = script.press("Enter");
    let Some(Call::New { agent: None, cwd, prompt, .. }) = call(&effects).first() else {
        panic!("{effects:?}")
    };
    assert_eq!((cwd.as_str(), prompt.as_str()), ("/home/dev/src/parlor", "fix the test"));
}

#[test]
fn an_agent_is_chosen_for_the_new_session() {
    let mut script = Script::connected(Start::New, SESSIONS);
    script.press("Tab");
    script.type_text("cod");
    script.press("Enter");
    script.type_text("hello");
    let effects = script.press("Enter");
    let Some(Call::New { agent: Some(agent), .. }) = call(&effects).first() else { panic!("{effects:?}") };
    assert_eq!(agent, "codex");
}

#[test]
fn prompts_are_sent_queued_and_withdrawn() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.press("Enter"), [], "an empty prompt is not sent");
    script.type_text("go on");
    let effects = script.press("Enter");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Prompt { text, .. }] if text == "go on"),
        "{effects:?}"
    );
    assert!(script.app.input.is_empty());
    // A prompt that was not accepted comes back.
    script.event(Event::PromptFailed {
        session: "s1".into(),
        text: "go on".to_owned(),
        failure: failure("the queue is full"),
    });
    let screen = script.screen(80, 24);
    assert!(screen.contains("› go on█") && screen.contains("the queue is full"), "{screen}");
    // Up selects the queued prompt, and its keys work.
    script.app.input.set("");
    script.changed(&[PROMPT, ANSWER, QUEUE, RUNNING]);
    script.press("Up");
    assert!(script.screen(80, 24).contains("e edit  w withdraw  s send now"));
    let effects = script.press("w");
    assert_eq!(session_calls(&effects), [&SessionCall::Withdraw(Json::parse("7").unwrap())]);
    script.press("Up");
    let effects = script.press("e");
    assert_eq!(session_calls(&effects), [&SessionCall::Withdraw(Json::parse("7").unwrap())]);
    assert_eq!(script.app.input.text(), "Then add an entry to CHANGELOG.md.");
}

#[test]
fn a_prompt_is_sent_into_the_running_turn() {
    let mut script = Script::open(&[PROMPT, ANSWER, QUEUE, RUNNING]);
    script.type_text("use port 81");
    let effects = script.press("Ctrl-X");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Prompt { text, during_turn: DuringTurn::Steer, .. }] if text == "use port 81"),
        "{effects:?}"
    );
    // A queued prompt is withdrawn first; a person who sends it now accepts that the turn is cancelled.
    script.press("Up");
    let effects = script.press("s");
    assert!(
        matches!(
            session_calls(&effects)[..],
            [SessionCall::Withdraw(_), SessionCall::Prompt { during_turn: DuringTurn::SteerOrCancel, .. }]
        ),
        "{effects:?}"
    );
}

#[test]
fn up_goes_through_the_history_and_down_comes_back_to_the_draft() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("draft");
    script.press("Up");
    assert!(script.app.input.text().starts_with("The port test"));
    script.press("Down");
    assert_eq!(script.app.input.text(), "draft");
}

#[test]
fn escape_cancels_the_turn_but_not_right_after_it_closed_something() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.press("Ctrl-T");
    assert_eq!(script.press("Esc"), []);
    script.wait(300);
    assert_eq!(script.press("Esc"), [], "too soon");
    script.wait(600);
    assert_eq!(session_calls(&script.press("Esc")), [&SessionCall::Cancel]);
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.press("Esc"), [], "nothing runs");
}

#[test]
fn the_second_interrupt_detaches_and_the_first_one_keeps_the_draft() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.type_text("draft");
    assert_eq!(script.press("Ctrl-C"), []);
    assert!(script.screen(80, 24).contains("Ctrl-C again detaches; the turn goes on"));
    script.wait(2100);
    assert_eq!(script.press("Ctrl-C"), [], "too late");
    assert_eq!(script.press("Ctrl-C"), [Effect::Quit]);
    assert_eq!(script.app.input.text(), "draft");
    let detached = script.app.detached().unwrap();
    assert!(detached.is_busy && Some(detached.session) == script.app.open_id(), "the session continues");
}

#[test]
fn files_and_commands_are_completed() {
    let commands = r#"{"sessionUpdate":"available_commands_update","availableCommands":[
        {"name":"review","description":"review the changes of a branch","input":{"hint":"branch"}},
        {"name":"release","description":"prepare a release"},{"name":"help","description":""}]}"#;
    let mut script = Script::open(&[PROMPT, commands, IDLE]);
    script.type_text("/re");
    screen!(script, 80 x 12, "commands-80");
    script.press("Down Tab");
    assert_eq!(script.app.input.text(), "/review ");
    script.app.input.set("");
    let effects = script.type_text("see @ma");
    assert!(effects.contains(&Effect::ListFiles("/home/dev/src/parlor".to_owned())), "{effects:?}");
    script.event(Event::Files(vec!["src/lib.rs".to_owned(), "src/main.rs".to_owned()]));
    assert!(script.screen(80, 24).contains("src/main.rs"));
    script.press("Enter");
    assert_eq!(script.app.input.text(), "see @src/main.rs ");
    // Esc closes the list for this word.
    script.type_text("@li");
    script.press("Esc");
    assert!(!script.screen(80, 24).contains("src/lib.rs"));
}

#[test]
fn files_are_listed_again_for_each_name() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    let listings =
        |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::ListFiles(_))).count();
    assert_eq!(listings(&script.type_text("@m")), 1);
    script.event(Event::Files(vec!["src/main.rs".to_owned()]));
    assert!(script.app.completion.is_some());
    assert_eq!(listings(&script.press("Tab")), 0);
    assert_eq!(listings(&script.type_text("@n")), 1);
    script.event(Event::Files(vec!["src/main.rs".to_owned(), "new.rs".to_owned()]));
    assert_eq!(script.app.completion.as_ref().unwrap().items[0].insert, "@new.rs");
}

#[test]
fn a_path_of_an_image_is_pasted_as_a_token_and_too_much_text_is_reported() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.event(Event::Paste("'/tmp/my shot.png' ".to_owned()));
    assert_eq!(script.app.input.text(), "[image my shot.png]");
    assert_eq!(script.app.input.full_text(), "@\"/tmp/my shot.png\"");
    script.event(Event::Paste("x".repeat(5 << 20)));
    assert!(script.screen(80, 24).contains("too large for a prompt"));
}

#[test]
fn a_login_that_is_required_is_offered_and_the_text_stays() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("go on");
    script.press("Enter");
    let failure = Failure { reason: "requires a login".to_owned(), needs_login: true };
    script.event(Event::PromptFailed { session: "s1".into(), text: "go on".to_owned(), failure });
    let screen = script.screen(80, 24);
    assert!(screen.contains("claude is not logged in") && screen.contains("Enter logs in"), "{screen}");
    assert_eq!(script.press("Enter"), [Effect::Login("claude".to_owned())]);
    script.event(Event::LoginEnded(Err("the login to claude did not succeed".to_owned())));
    assert_eq!(script.press("Enter"), [Effect::Login("claude".to_owned())]);
    let effects = script.event(Event::LoginEnded(Ok(())));
    assert_eq!(effects, [Effect::Send(Call::Agents)]);
    let effects = script.press("Enter");
    assert!(matches!(session_calls(&effects)[..], [SessionCall::Prompt { .. }]), "{effects:?}");
}

#[test]
fn a_history_entry_replaces_what_is_written_but_does_not_lose_it() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("half");
    script.press("Ctrl-R");
    script.type_text("port");
    script.press("Enter");
    assert!(script.app.input.text().starts_with("The port test"));
    script.press("Ctrl-R");
    script.type_text("half");
    script.press("Enter");
    assert_eq!(script.app.input.text(), "half");
}

#[test]
fn editing_a_prompt_keeps_what_was_being_written() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("half");
    script.press("Tab k e");
    assert!(script.app.input.text().starts_with("The port test"));
    script.press("Esc");
    assert_eq!(script.app.input.text(), "half");
}

#[test]
fn prompts_that_were_queued_when_the_turn_is_cancelled_come_back() {
    let withdrawn = |text: &str| Event::PromptWithdrawn { session: "s1".into(), text: text.to_owned() };
    let mut script = Script::open(&[PROMPT, RUNNING]);
    for text in ["then this", "and that"] {
        script.type_text(text);
        script.press("Enter");
    }
    script.press("Esc");
    script.event(withdrawn("then this"));
    script.event(withdrawn("and that"));
    assert_eq!(script.app.input.text(), "then this\n\nand that");
    let screen = script.screen(80, 24);
    assert!(screen.contains("What was queued was not sent. It is in the input again"), "{screen}");
    // What is being written stays; the history has what was queued.
    script.press("Ctrl-A Ctrl-K Ctrl-K Ctrl-K Ctrl-K Ctrl-K");
    script.app.input.set("other words");
    script.event(withdrawn("and that"));
    assert_eq!(script.app.input.text(), "other words");
    assert!(script.screen(80, 24).contains("A queued prompt was not sent. Ctrl-R finds it"));
    script.app.input.set("");
    script.press("Up");
    assert_eq!(script.app.input.text(), "and that");
}

#[test]
fn a_prompt_that_the_person_withdraws_does_not_come_back() {
    let mut script = Script::open(&[PROMPT, QUEUE, RUNNING]);
    script.press("Up w");
    let text = "Then add an entry to CHANGELOG.md.".to_owned();
    script.event(Event::PromptWithdrawn { session: "s1".into(), text: text.clone() });
    assert_eq!(script.app.input.text(), "");
    // The history has it, before the prompts that the transcript has.
    assert_eq!(script.app.history()[0], text);
}
