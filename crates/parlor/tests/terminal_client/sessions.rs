//! The list of sessions, search, options, two clients.

use parlor_testkit::wait::wait_until;

use crate::with_server;
use parlor_testkit::screen::{CTRL_C, ENTER, ESC, Screen, TAB};

#[test]
fn the_list_follows_other_clients_and_opens_sessions() {
    let scenario = with_server();
    scenario.new_session("say first session");
    let mut screen = Screen::with_size(&scenario, &["attach"], 120, 30);
    screen.wait_for("Sessions 1");
    scenario.new_session("say second session");
    screen.wait_for("Sessions 2");
    scenario.run(&["title", "say second", "Renamed elsewhere"]).success();
    screen.wait_for("Renamed elsewhere");
    screen.press("\u{f}");
    screen.wait_for("Open a session");
    screen.press("renamed");
    screen.wait_for("1 of 2");
    screen.press(ENTER);
    screen.wait_for("second session");
    // Change its title here.
    screen.press("\t\t");
    screen.wait_for("x archive");
    screen.press("t");
    screen.wait_for("Title: Renamed elsewhere");
    screen.press("\u{15}Named here");
    screen.press(ENTER);
    wait_until("the title is stored", || scenario.run(&["ls"]).success().stdout.contains("Named here"));
}

#[test]
fn a_deleted_session_can_be_taken_back() {
    let scenario = with_server();
    scenario.new_session("say keep me");
    scenario.new_session("say delete me");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("delete me");
    screen.press("\t\t");
    screen.wait_for("x archive");
    screen.press("D");
    screen.wait_for("Deleted \"say delete me\".  u undo");
    screen.press("u");
    screen.wait_for("Kept \"say delete me\"");
    screen.press("D");
    screen.wait_for("u undo");
    screen.press("q");
    // Detaching sends what waits.
    assert_eq!(screen.wait(), Some(0));
    wait_until("it is deleted", || !scenario.run(&["ls"]).success().stdout.contains("delete me"));
    assert!(scenario.run(&["ls"]).success().stdout.contains("keep me"));
}

#[test]
fn archived_sessions_are_shown_and_restored() {
    let scenario = with_server();
    scenario.new_session("say keep me");
    scenario.new_session("say put aside");
    let mut screen = Screen::with_size(&scenario, &["attach", "say keep"], 120, 30);
    screen.wait_for("Sessions 2");
    scenario.run(&["archive", "say put"]).success();
    screen.wait_for("Sessions 1");
    screen.wait_for("1 archived");
    screen.wait_for("─ Idle");
    screen.press("\t\t");
    screen.wait_for("x archive");
    screen.press("AG");
    screen.wait_for("x restore");
    screen.press("x");
    screen.wait_for("Restored \"say put aside\"");
    screen.wait_for("Sessions 2");
    assert!(scenario.run(&["ls"]).success().stdout.contains("put aside"));
}

#[test]
fn a_search_opens_the_session_at_the_message() {
    let scenario = with_server();
    scenario.new_session("say a needle in the haystack");
    scenario.new_session("say something else");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("something else");
    screen.press("\u{6}");
    screen.wait_for("all sessions");
    screen.press("needle role:agent");
    screen.wait_for("1 hit in 1 session");
    screen.press(ENTER);
    screen.wait_for("▌");
    screen.wait_for("a needle in the haystack");
    screen.press(ESC);
    screen.wait_for("1 hit in 1 session");
}

#[test]
fn mode_and_model_are_set_for_all_clients() {
    let scenario = with_server();
    scenario.new_session("say hello");
    let mut one = Screen::open(&scenario, &["attach"]);
    let two = Screen::open(&scenario, &["attach"]);
    one.wait_for("mode Ask first");
    two.wait_for("mode Ask first");
    one.press("\u{1b}[Z");
    one.wait_for("Model, mode and options");
    one.press("code");
    one.press(ENTER);
    one.wait_for("mode Write code");
    two.wait_for("mode Write code");
}

#[test]
fn two_clients_show_the_same_session() {
    let scenario = with_server();
    scenario.new_session("say hello");
    let mut one = Screen::open(&scenario, &["attach"]);
    let mut two = Screen::open(&scenario, &["attach"]);
    one.wait_for("hello");
    two.wait_for("hello");
    one.wait_for("2 clients");
    one.prompt("say from the first client");
    two.wait_for("from the first client");
    two.wait_for("─ Idle");
    two.prompt("say from the second client");
    one.wait_for("from the second client");
}

#[test]
fn the_help_lists_the_keys_of_the_configuration() {
    let scenario = with_server();
    let config = scenario.path().join("keys.toml");
    std::fs::write(&config, "[keys.messages]\nfork = \"Ctrl-K\"\n").unwrap();
    let mut command = scenario.command(&["new"]);
    command.env("PARLOR_CONFIG", &config);
    // The running server has no configuration file: only `--config` is compared with it.
    let mut screen = Screen::run(&command, 120, 40);
    screen.wait_for("Enter start");
    screen.press("\u{1b}OP");
    screen.wait_for("Ctrl-K            fork here");
    std::fs::write(&config, "[keys.messages]\nfork = \"e\"\n").unwrap();
    let mut command = scenario.command(&["new"]);
    command.env("PARLOR_CONFIG", &config);
    let mut screen = Screen::run(&command, 120, 40);
    assert_eq!(screen.wait(), Some(2));
    screen.wait_for("keys.toml:2: e is assigned twice in 'messages'");
}

#[test]
fn forks_are_shown_as_a_tree() {
    let scenario = with_server();
    scenario.new_session("say the parent");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("the parent");
    screen.press(TAB);
    screen.wait_for("f fork here");
    screen.press("f");
    screen.wait_for("Forked at #2");
    // The fork is open when the input has the focus.
    screen.wait_for_no("f fork here");
    screen.press(TAB);
    screen.wait_for("f fork here");
    screen.press("F");
    screen.wait_for("2 sessions");
    screen.wait_for("└");
}

#[test]
fn detaching_says_how_to_return() {
    let scenario = with_server();
    let id = scenario.new_session("say hello");
    let mut screen = Screen::open(&scenario, &["attach", &id]);
    screen.wait_for("hello");
    for (prompt, text) in [
        ("", "detached from ID. `parlor attach ID` returns"),
        ("sleep 60000", "detached from ID; the turn continues."),
    ] {
        if !prompt.is_empty() {
            screen = Screen::open(&scenario, &["attach", &id]);
            screen.wait_for("hello");
            screen.prompt(prompt);
            screen.wait_for("Esc cancels");
        }
        screen.press(CTRL_C);
        screen.wait_for("Ctrl-C again");
        screen.press(CTRL_C);
        screen.wait_for(&text.replace("ID", &id[..8]));
        assert_eq!(screen.wait(), Some(0));
    }
}

#[test]
fn the_latest_session_of_all_directories_is_opened_with_all() {
    let scenario = with_server();
    scenario.new_session("say it is elsewhere");
    let empty = scenario.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let port = std::fs::read_to_string(scenario.data().join("port")).unwrap();
    let url = format!("ws://127.0.0.1:{}", port.trim());
    let token = std::fs::read_to_string(scenario.data().join("token")).unwrap();
    let open = |args: &[&str]| {
        let mut command = scenario.command(args);
        command.current_dir(&empty).env("PARLOR_TOKEN", token.trim());
        Screen::run(&command, 120, 24)
    };
    for args in
        [&["attach", "--all"][..], &["attach", "latest", "--all"], &["attach", "--all", "--server", &url]]
    {
        let screen = open(args);
        screen.wait_for("─ Idle");
        screen.wait_for("it is elsewhere");
        assert_eq!(screen.detach(), Some(0));
    }
    // Without the option, only the sessions of the directory count.
    for args in [&["attach"][..], &["attach", "latest", "--server", &url]] {
        let screen = open(args);
        screen.wait_for("Enter start");
        assert_eq!(screen.detach(), Some(0));
    }
}
