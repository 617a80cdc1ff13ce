//! `login`, and what other commands say of logins.

use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;

use crate::PARLOR;
use crate::terminal::Terminal;

/// A scenario with a server whose default agent requires a login by one of these methods.
fn scenario(methods: &str) -> Scenario {
    let mut scenario = Scenario::new(PARLOR);
    let file = scenario.path().join("logged-in");
    let agent = format!("mine={} --auth={methods} --login-file {}", programs::test_agent(), file.display());
    scenario.serve(&["--agent", &agent]);
    scenario
}

const ALL: &str = "test,url,terminal,env";

#[test]
fn a_prompt_to_an_agent_that_requires_a_login_names_the_command_and_the_methods() {
    let scenario = scenario(ALL);
    let output = scenario.run(&["prompt", "--new", "say hello"]).exit_code(4);
    assert_eq!(
        output.stderr,
        "parlor: agent 'mine' requires a login (log in first): run `parlor login mine`\n  methods: test, url, terminal, env \
         (TEST_API_KEY)\n"
    );
    let agents = scenario.run(&["agents"]).success().plain();
    assert!(agents.stdout.contains("not logged in"), "{agents:#?}");
    let doctor = scenario.run(&["doctor"]).exit_code(1).plain();
    assert!(doctor.stdout.contains("fail  default agent   mine: installed, not logged in\n"), "{doctor:#?}");
    assert!(doctor.stdout.contains("run: parlor login mine"), "{doctor:#?}");

    let output = scenario.run(&["login", "mine", "--method", "test"]).success();
    assert_eq!(output.stdout, "logged in to mine\n");
    assert_eq!(scenario.run(&["prompt", "--new", "say hello"]).success().stdout, "hello\n");
    let doctor = scenario.run(&["doctor"]).success().plain();
    assert!(doctor.stdout.contains("answers initialize, speaks v2, logged in"), "{doctor:#?}");
    let agents = scenario.run(&["agents", "--json"]).success().json();
    let mine = agents.as_array().unwrap().iter().find(|agent| agent["name"] == "mine").unwrap();
    assert_eq!(mine["loggedIn"], true);
}

#[test]
fn a_turn_that_fails_because_the_login_has_expired_names_the_command() {
    let scenario = scenario("test");
    scenario.run(&["login", "mine", "--method", "test"]).success();
    let prompt = "fail -32000 the token has expired";
    let output = scenario.run(&["prompt", "--new", prompt]).exit_code(4);
    let error = "agent 'mine' requires a login (the token has expired): run `parlor login mine`";
    assert!(output.stderr.ends_with(&format!("parlor: the turn failed: {error}\n")), "{output:#?}");
    scenario.run(&["prompt", "--new", "--json", prompt]).exit_code(4);
    // Any other failure is not the agent's availability, and can be repeated.
    let output = scenario.run(&["prompt", "--new", "fail -32603 overloaded"]).exit_code(1);
    assert!(
        output.stderr.contains("parlor: the turn failed: overloaded\n  hint: `parlor regenerate "),
        "{output:#?}"
    );
}

#[test]
fn without_a_terminal_the_method_has_to_be_named() {
    let scenario = scenario(ALL);
    let output = scenario.run(&["login", "mine"]).exit_code(2);
    assert_eq!(
        output.stderr,
        "parlor: agent 'mine' has several login methods\n  hint: --method takes one of these: test, url, terminal, env\n"
    );
    let output = scenario.run(&["login", "mine", "--method", "terminal"]).exit_code(2);
    assert_eq!(
        output.stderr,
        "parlor: login method 'terminal' needs a terminal\n  hint: run `parlor login mine` on a terminal\n"
    );
    let output = scenario.run(&["login", "mine", "--method", "nothing"]).exit_code(2);
    assert!(output.stderr.starts_with("parlor: agent 'mine' has no login method 'nothing'\n"), "{output:#?}");
    let output = scenario.run(&["login", "nobody"]).exit_code(2);
    assert!(output.stderr.contains("unknown agent 'nobody'"), "{output:#?}");
    let output = scenario.run(&["login", "mine", "--method", "env"]).exit_code(1);
    assert!(
        output.stderr.contains("login method 'env' of agent 'mine' needs TEST_API_KEY in the environment\n"),
        "{output:#?}"
    );
    let output = scenario.run(&["login", "demo"]).success();
    assert_eq!(output.stdout, "agent 'demo' has no login methods: it needs no login\n");
    let output = scenario.run(&["login", "mine", "--method", "test", "--json"]).success();
    assert_eq!(output.stdout, "{\"agent\":\"mine\",\"methodId\":\"test\",\"loggedIn\":true}\n");
}

#[test]
fn a_variable_in_the_environment_of_the_command_logs_in() {
    let scenario = scenario("env");
    let output = scenario.command(&["login", "mine"]).env("TEST_API_KEY", "secret").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "logged in to mine\n");
}

#[test]
fn methods_are_asked_for_on_a_terminal_and_run_there() {
    for columns in [40, 120] {
        let scenario = scenario(ALL);
        let mut terminal = Terminal::with_columns(&scenario, &["login", "mine"], columns);
        terminal.wait_for("Method (1-4): ");
        terminal.type_text("7\n");
        terminal.type_text("3\n");
        terminal.wait_for("Password: ");
        // Every key goes to the program, which is what ends.
        terminal.type_text("no\r");
        let (code, seen) = terminal.wait();
        assert_eq!(code, Some(1), "{seen}");
        assert!(seen.contains("Login methods of mine") && seen.contains("1  test      Test login"), "{seen}");
        assert!(
            seen.contains("parlor: the login to agent 'mine' failed: its program ended with exit status: 1"),
            "{seen}"
        );

        let mut terminal =
            Terminal::with_columns(&scenario, &["login", "mine", "--method", "terminal"], columns);
        terminal.wait_for("Password: ");
        terminal.type_text("swordfish\r");
        let (code, seen) = terminal.wait();
        assert_eq!(code, Some(0), "{seen}");
        assert!(seen.contains("Welcome.") && seen.contains("logged in to mine"), "{seen}");
        assert_eq!(scenario.run(&["prompt", "--new", "say hello"]).success().stdout, "hello\n");
    }
}

#[test]
fn ctrl_c_on_the_terminal_goes_to_the_program_of_the_login() {
    let scenario = scenario("terminal");
    let mut terminal = Terminal::new(&scenario, &["login", "mine"]);
    terminal.wait_for("Password: ");
    terminal.type_text("\u{3}");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("its program ended with signal: 2 (SIGINT)"), "{seen}");
}

#[test]
fn a_link_is_shown_on_the_terminal() {
    let scenario = scenario("url");
    let mut terminal = Terminal::new(&scenario, &["login", "mine"]);
    terminal.wait_for("Open the page and log in");
    terminal.wait_for("https://example.org/login");
    terminal.wait_for("Answer (1-2): ");
    terminal.type_text("1\n");
    let (code, seen) = terminal.wait();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("logged in to mine"), "{seen}");
}
