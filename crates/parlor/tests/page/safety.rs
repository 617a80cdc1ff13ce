//! What agents and other pages cannot do.

use crate::Page;

#[test]
fn a_browser_is_signed_in_by_a_link_that_works_once() {
    let page = Page::new();
    let link = page.link();
    let tab = page.browser.open(&link);
    tab.wait_for("location.pathname === '/'");
    assert_eq!(tab.eval("document.cookie"), "", "no script can read the cookie");
    let other = parlor_testkit::browser::Browser::start();
    let tab = other.open(&link);
    tab.wait_for_text("This link was used");
    tab.go_to(&page.address("/"));
    tab.wait_for_text("This browser is not signed in");
}

#[test]
fn a_server_on_another_port_of_localhost_does_not_receive_the_cookie() {
    let page = Page::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let request = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; 1 << 16];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let tab = page.browser.open(&format!("http://localhost:{port}/"));
    tab.wait_for_text("ok");
    let request = request.join().unwrap();
    assert!(request.starts_with("GET / HTTP/1.1"), "{request}");
    assert!(!request.to_lowercase().contains("cookie:"), "{request}");
}

#[test]
fn markup_of_an_agent_is_shown_as_text_and_requests_nothing() {
    let page = Page::new();
    let attacks = [
        "<script>window.hacked = 1</script>",
        "<img src=x onerror=window.hacked=1>",
        "<svg onload=window.hacked=1>",
        "[link](javascript:window.hacked=1)",
        "![image](http://127.0.0.1:9/tracker.png)",
        "<iframe src=http://127.0.0.1:9/></iframe>",
        "<style>body { display: none }</style>",
        "<form action=http://127.0.0.1:9/><button>x</button></form>",
        "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
        "<base href=http://127.0.0.1:9/>",
    ];
    let mut text = "title <img src=x onerror=window.hacked=1>\n".to_owned();
    for attack in attacks {
        for command in ["say", "think", "tool"] {
            text.extend([command, " ", attack, "\n"]);
        }
    }
    let id = page.new_session(&text);
    let tab = page.open_session(&id);
    tab.wait_for_text("<script>window.hacked = 1</script>");
    tab.eval("for (const details of document.querySelectorAll('details')) details.open = true");
    tab.eval("for (const link of document.querySelectorAll('.log a:not([href^=\"/\"])')) link.click()");
    assert_eq!(tab.eval("window.hacked ?? null"), serde_json::Value::Null);
    assert_eq!(
        tab.eval("document.querySelectorAll('main iframe, main script, main style, main base').length"),
        0
    );
    let own = page.address("");
    let socket = own.replacen("http", "ws", 1);
    let foreign: Vec<_> = tab
        .requests()
        .into_iter()
        .filter(|url| !url.starts_with(&own) && !url.starts_with(&socket))
        .collect();
    assert!(foreign.iter().all(|url| url == "about:blank" || url.starts_with("data:")), "{foreign:?}");
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn the_page_cannot_be_framed_and_loads_nothing_of_other_hosts() {
    let page = Page::new();
    let headers = {
        use std::io::{Read, Write};
        let port = std::fs::read_to_string(page.data().join("port")).unwrap();
        let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{}", port.trim())).unwrap();
        write!(stream, "GET /assets/page.js HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    assert!(headers.starts_with("HTTP/1.1 4"), "another name of the host is refused: {headers}");
    let tab = page.open("/");
    let policy = tab.eval("fetch('/').then(r => r.headers.get('content-security-policy'))");
    let policy = policy.as_str().unwrap_or_default();
    for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[test]
fn a_browser_that_is_signed_out_loses_the_page_and_its_connection() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    let browsers = page.run(&["open", "--browsers", "--json"]).success().last_json();
    assert_eq!(browsers[0]["role"], "driver", "{browsers}");
    let browser = browsers[0]["id"].as_str().unwrap();
    assert!(page.run(&["open", "--browsers"]).success().stdout.contains(&browser[..8]));
    page.run(&["open", "--sign-out", &browser[..8]]).success();
    tab.wait_for_text("This browser is not signed in");
    page.run(&["open", "--sign-out", &browser[..8]]).exit_code(2);
}

#[test]
fn a_link_to_a_session_signs_in_and_shows_it() {
    let page = Page::new();
    let id = page.new_session("title The other one\nsay hello");
    let link = page.run(&["open", "--print", "The other"]).success().stdout.trim().to_owned();
    let tab = page.browser.open(&link);
    tab.wait_for(&format!("location.pathname === '/s/{id}'"));
    tab.wait_for_text("The other one");
}
