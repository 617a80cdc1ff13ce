//! Servers that stop, restart or do not respond; agents without a server.

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;

use crate::{PARLOR, go_to_request, tls, with_server};
use parlor_testkit::screen::{ENTER, Screen};

#[test]
fn a_restarted_server_is_connected_again_without_duplicates_and_the_draft_is_kept() {
    let mut scenario = with_server();
    scenario.new_session("say only once");
    let mut screen = Screen::open(&scenario, &["attach"]);
    screen.wait_for("only once");
    screen.press("my draft");
    screen.wait_for("› my draft");
    scenario.stop();
    screen.wait_for("✗ offline");
    screen.wait_for("No connection to the server since");
    screen.wait_for("`parlor serve` starts the server.");
    screen.press(" goes on");
    screen.wait_for("› my draft goes on");
    scenario.serve(&["--agent", "demo"]);
    // Enter would connect at once; a second later it would send the draft.
    screen.wait_for("Connected again after");
    screen.wait_for_no("offline");
    assert!(screen.text().contains("› my draft goes on"), "{}", screen.text());
    let text = screen.text();
    assert_eq!(text.matches("only once").count(), 3, "title, prompt and answer: {text}");
    // It can be used as before.
    screen.press("\u{15}");
    screen.prompt("say after the restart");
    screen.wait_for("\n   after the restart");
    screen.wait_for("─ Idle");
}

#[test]
fn a_killed_server_shows_the_interrupted_turn_after_its_restart() {
    let mut scenario = with_server();
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.prompt("sleep 60000");
    screen.wait_for("Esc cancels");
    scenario.kill();
    screen.wait_for("✗ offline");
    scenario.serve(&["--agent", "demo"]);
    screen.press(ENTER);
    screen.wait_for("Connected again after");
    screen.wait_for_no("Esc cancels");
}

#[test]
fn a_server_that_does_not_respond_leaves_the_client_usable() {
    let scenario = Scenario::new(PARLOR);
    std::fs::create_dir_all(scenario.data()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let mut screen = Screen::open(&scenario, &["attach", "--server", &url]);
    screen.wait_for("Connecting to the server");
    screen.press("typed meanwhile");
    screen.wait_for("› typed meanwhile");
    screen.press("\u{1b}OP");
    screen.wait_for("Anywhere");
    screen.press("\u{1b}");
    screen.wait_for("› typed meanwhile");
    assert_eq!(screen.detach(), Some(0));
    drop(listener);
}

#[test]
fn a_server_that_answers_late_is_waited_for() {
    let mut scenario = Scenario::new(PARLOR);
    std::fs::write(scenario.work().join("config.toml"), "[server]\nhosts = [\"localhost\"]\n").unwrap();
    scenario.serve(&["--agent", "demo", "--config", "config.toml"]);
    scenario.new_session("say worth the wait");
    let (listener, port) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), port(&scenario));
    let url = format!("ws://localhost:{}", listener.local_addr().unwrap().port());
    let (answers, late) = std::sync::mpsc::channel::<()>();
    // Everything that the server sends waits until the test says so. The threads end with the connections.
    std::thread::spawn(move || {
        let mut late = Some(late);
        for client in listener.incoming().flatten() {
            let server = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut to_server, mut from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
            let _ = late.take().map(|late| late.recv());
            let (mut from_server, mut to_client) = (server, client);
            std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
        }
    });
    let mut command = scenario.command(&["attach", "--server", &url]);
    let token = std::fs::read_to_string(scenario.data().join("token")).unwrap();
    command.env("PARLOR_TOKEN", token.trim());
    let mut screen = Screen::run(&command, 80, 24);
    screen.wait_for("Connecting to the server");
    screen.press("typed meanwhile");
    screen.wait_for("› typed meanwhile");
    answers.send(()).unwrap();
    screen.wait_for("\n   worth the wait");
    screen.wait_for("› typed meanwhile");
    assert_eq!(screen.detach(), Some(0));
}

/// Runs the client with a server at an address, and has a turn.
fn prompt_at(scenario: &Scenario, url: &str) {
    let mut command = scenario.command(&["attach", "--server", url]);
    let token = std::fs::read_to_string(scenario.data().join("token")).unwrap();
    command.env("PARLOR_TOKEN", token.trim()).env("SSL_CERT_FILE", tls::CERTIFICATE);
    let mut screen = Screen::run(&command, 80, 24);
    screen.wait_for("Enter start");
    screen.prompt(&format!("say over {}", &url[..4]));
    screen.wait_for(&format!("\n   over {}", &url[..4]));
    screen.wait_for("─ Idle");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn a_server_is_used_over_a_websocket_with_and_without_tls() {
    let mut scenario = Scenario::new(PARLOR);
    std::fs::write(scenario.work().join("config.toml"), "[server]\nhosts = [\"localhost\"]\n").unwrap();
    scenario.serve(&["--agent", "demo", "--config", "config.toml"]);
    let port = port(&scenario);
    prompt_at(&scenario, &format!("ws://127.0.0.1:{port}"));
    let proxy = tls::Proxy::start(port);
    prompt_at(&scenario, &format!("wss://localhost:{}", proxy.port));
}

/// The port of the HTTP listener.
fn port(scenario: &Scenario) -> u16 {
    std::fs::read_to_string(scenario.data().join("port")).unwrap().trim().parse().unwrap()
}

#[test]
fn a_refused_first_connection_ends_the_client_with_the_reason_of_the_server() {
    let scenario = with_server();
    let url = format!("ws://127.0.0.1:{}", port(&scenario));
    let mut command = scenario.command(&["attach", "--server", &url]);
    command.env("PARLOR_TOKEN", "x".repeat(20));
    let mut screen = Screen::run(&command, 200, 24);
    assert_eq!(screen.wait(), Some(5));
    screen
        .wait_for(&format!("parlor: cannot use the server {url}/acp: 401 Unauthorized: A token is required"));
    screen.wait_for("PARLOR_TOKEN");
}

#[test]
fn a_host_that_does_not_exist_ends_the_client() {
    let scenario = Scenario::new(PARLOR);
    let mut screen =
        Screen::with_size(&scenario, &["attach", "--server", "ws://nowhere.invalid:7667"], 200, 24);
    assert_eq!(screen.wait(), Some(5));
    screen.wait_for("parlor: cannot use the server ws://nowhere.invalid:7667/acp: ");
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused() {
    let scenario = with_server();
    let proxy = tls::Proxy::start(port(&scenario));
    let url = format!("wss://localhost:{}", proxy.port);
    let mut screen = Screen::with_size(&scenario, &["attach", "--server", &url], 200, 24);
    assert_eq!(screen.wait(), Some(5));
    screen.wait_for("invalid peer certificate");
}

#[test]
fn a_server_that_closes_connections_is_tried_again() {
    let scenario = Scenario::new(PARLOR);
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", socket.local_addr().unwrap());
    drop(socket);
    let mut screen = Screen::open(&scenario, &["attach", "--server", &url]);
    screen.wait_for("connection refused");
    screen.wait_for("retry in");
    screen.press("kept");
    screen.wait_for("› kept");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn an_agent_is_used_without_a_server() {
    let scenario = Scenario::new(PARLOR);
    let mut screen = Screen::open(&scenario, &["attach", "--", PARLOR, "demo-agent"]);
    screen.wait_for("direct");
    screen.prompt("say hello directly");
    screen.wait_for("\n   hello directly");
    screen.wait_for("─ Idle");
    go_to_request(&mut screen, "ask Delete the notes");
    screen.press("y");
    screen.wait_for("You allowed it this once.");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn an_agent_without_a_server_that_ends_is_reported_and_the_input_is_kept() {
    let scenario = Scenario::new(PARLOR);
    let mut screen = Screen::open(&scenario, &["attach", "--", PARLOR, "demo-agent"]);
    screen.wait_for("direct");
    screen.prompt("terminal kill -9 $PPID");
    screen.wait_for("✗ The agent ended");
    screen.press("kept");
    screen.wait_for("kept");
    screen.press(ENTER);
    screen.press("!");
    screen.wait_for("kept!");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn an_agent_that_requires_a_login_is_logged_in_to_from_the_client() {
    let mut scenario = Scenario::new(PARLOR);
    let file = scenario.path().join("logged-in");
    let agent = format!("mine={} --auth=test --login-file {}", programs::test_agent(), file.display());
    scenario.serve(&["--agent", &agent]);
    let mut screen = Screen::open(&scenario, &["new"]);
    screen.wait_for("Enter start");
    screen.prompt("say hello");
    screen.wait_for("mine is not logged in");
    screen.wait_for("› say hello");
    screen.press(ENTER);
    screen.wait_for("Logged in");
    screen.press(ENTER);
    screen.wait_for("\n   hello");
    screen.wait_for("─ Idle");
    assert_eq!(screen.detach(), Some(0));
}

#[test]
fn an_agent_of_version_1_is_used_without_a_server() {
    let scenario = Scenario::new(PARLOR);
    let mut screen = Screen::open(&scenario, &["attach", "--", programs::test_agent(), "--version", "1"]);
    screen.wait_for("direct");
    screen.prompt("say hello");
    screen.wait_for("─ Idle");
}

#[test]
fn a_command_that_is_no_agent_is_reported() {
    let scenario = Scenario::new(PARLOR);
    let mut screen = Screen::open(&scenario, &["attach", "--", "/nowhere/agent"]);
    assert_eq!(screen.wait(), Some(4));
    screen.wait_for("parlor: cannot start /nowhere/agent");
}

#[test]
fn without_a_terminal_the_client_is_not_started() {
    let scenario = Scenario::new(PARLOR);
    let output = scenario.run(&["attach"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("the terminal client needs a terminal"), "{}", output.stderr);
}

#[test]
fn an_agent_that_cannot_be_used_is_reported_before_the_client_opens() {
    let scenario = with_server();
    for (agent, message, code) in
        [("nobody", "unknown agent 'nobody'", 2), ("goose", "agent 'goose' is not", 4)]
    {
        let mut screen = Screen::open(&scenario, &["new", "--agent", agent]);
        screen.wait_for(message);
        assert_eq!(screen.wait(), Some(code));
    }
}
