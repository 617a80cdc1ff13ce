//! `[[notify]]` targets, which a running server tells of requests and of turns that ended or failed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use parlor_testkit::server::TestDir;
use parlor_testkit::wait::{TIMEOUT, wait_until};
use serde_json::Value;

use crate::tls::Proxy;
use crate::{PARLOR, tls};

/// A local endpoint, and what is posted to it.
fn endpoint() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let line = line.trim().to_lowercase();
                if line.is_empty() {
                    break;
                }
                length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

fn text<'a>(event: &'a Value, name: &str) -> &'a str {
    event[name].as_str().unwrap_or_else(|| panic!("no {name}: {event}"))
}

#[test]
fn an_address_is_told_of_a_request_and_of_the_end_of_its_turn() {
    let (url, received) = endpoint();
    let dir = TestDir::new(PARLOR).with_test_agents(&format!("[[notify]]\nurl = \"{url}\"\ndelay = 0\n"));
    let server = dir.serve();
    let prompt = ["prompt", "--new", "--agent", "v2", "--no-wait", "--json", "ask Delete it\nsay The end"];
    dir.run(&prompt).success();
    let event = received.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((text(&event, "event"), text(&event, "agent")), ("needs_you", "v2"));
    assert_eq!(event["cwd"], dir.work().to_str().unwrap());
    assert!(text(&event, "text").contains("Delete it"), "{event}");
    let port = server.address().rsplit(':').next().unwrap().to_owned();
    let page = format!("http://parlor.localhost:{port}/s/{}#t-", text(&event, "sessionId"));
    assert!(text(&event, "url").starts_with(&page), "{event}");
    let request = event["requests"][0].as_str().unwrap();
    dir.run(&["answer", request, "--allow"]).success();
    let event = received.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((text(&event, "event"), text(&event, "text")), ("turn_ended", "The end"));
    assert!(text(&event, "url").contains("#m-"), "{event}");
    assert!(received.try_recv().is_err(), "each is sent once");
}

#[test]
fn an_address_with_tls_is_notified_if_its_certificate_is_trusted() {
    let (url, received) = endpoint();
    let port = url.trim_end_matches("/hook").rsplit(':').next().unwrap().parse().unwrap();
    let proxy = Proxy::start(port);
    let target = format!("[[notify]]\nurl = \"https://localhost:{}/hook\"\ndelay = 0\n", proxy.port);
    let dir = TestDir::new(PARLOR).with_test_agents(&target);
    let mut command = Command::new(PARLOR);
    command.env("SSL_CERT_FILE", tls::CERTIFICATE);
    let mut server = dir.serve_with(command);
    dir.run(&["prompt", "--new", "--agent", "v2", "say The end"]).success();
    let event = received.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((text(&event, "event"), text(&event, "text")), ("turn_ended", "The end"));
    server.stop();

    // Without the certificate of the authority, nothing is sent.
    let _server = dir.serve();
    dir.run(&["prompt", "--new", "--agent", "v2", "say Another end"]).success();
    wait_until("the log has the reason", || {
        let log = dir.run(&["logs"]).stdout;
        log.contains("cannot deliver a notification") && log.contains("invalid peer certificate")
    });
    assert!(received.try_recv().is_err(), "it was not sent");
}

#[test]
fn a_target_that_is_added_while_the_server_runs_is_told() {
    let dir = TestDir::new(PARLOR).with_test_agents("");
    let _server = dir.serve();
    let file = dir.path().join("received");
    let script = format!("printf '%s %s\\n' \"$PARLOR_EVENT\" \"$PARLOR_URL\" >> {}", file.display());
    let dir = dir.with_test_agents(&format!(
        "[[notify]]\ncommand = [\"sh\", \"-c\", {script:?}]\nevents = [\"turn_failed\"]\ndelay = 0\npage = \"https://p.example\"\n"
    ));
    // Clients that connect have the server read its configuration.
    dir.run(&["prompt", "--new", "--agent", "v2", "say fine"]).success();
    dir.run(&["prompt", "--new", "--agent", "v2", "fail -32000 Too much"]).exit_code(1);
    wait_until("the program was run", || {
        std::fs::read_to_string(&file).is_ok_and(|received| received.ends_with('\n'))
    });
    let received = std::fs::read_to_string(&file).unwrap();
    assert!(
        received.starts_with("turn_failed https://p.example/s/") && received.contains("#e-"),
        "{received}"
    );
}

#[test]
fn an_invalid_target_is_reported_with_its_table() {
    let dir = TestDir::new(PARLOR).with_config("[[notify]]\nurl = \"nowhere\"\n");
    let output = dir.run(&["serve", "--config", dir.config().to_str().unwrap()]).exit_code(2);
    let printed = format!("{}{}", output.stdout, output.stderr);
    assert!(printed.contains("[[notify]] 1") && printed.contains("'nowhere' is not an address"), "{printed}");
}
