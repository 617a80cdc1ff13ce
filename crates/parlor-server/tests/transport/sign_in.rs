//! Browsers: links, cookies, tickets, and what other pages and hosts cannot do.

use std::fmt::Write;

use axum::routing::get;
use axum::{Extension, Router};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::ClientRole;
use parlor_server::transport::{Limits, PageUpgrade};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Server, in_time};

/// A server with a page that names the role of the browser.
async fn server() -> Server {
    let show = async |Extension(browser): Extension<SignedIn>| format!("the page for {:?}", browser.role);
    let open = async |upgrade: PageUpgrade| upgrade.open(async |_| {});
    let page = Router::new().route("/", get(show)).route("/live", get(open));
    Server::with_page(Limits::default(), |http| http.hosts.push("parlor.example".into()), Some(page)).await
}

/// A response: its status, its headers in lower case, and its body.
struct Response {
    status: u16,
    headers: String,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The cookie that it sets, as a browser sends it.
    fn cookie(&self) -> Option<&str> {
        self.header("set-cookie").and_then(|cookie| cookie.split(';').next())
    }
}

async fn send(server: &Server, request: &str, headers: &[(&str, &str)]) -> Response {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\n");
    let host = page_host(server);
    if !headers.iter().any(|(name, _)| *name == "Host") {
        let _ = write!(text, "Host: {host}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    stream.write_all(format!("{text}Content-Length: 0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (line, headers) = head.split_once("\r\n").unwrap();
    Response {
        status: line.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: headers.to_owned(),
        body: body.to_owned(),
    }
}

fn page_host(server: &Server) -> String {
    format!("parlor.localhost:{}", server.address.port())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn link(server: &Server, role: ClientRole) -> String {
    format!("GET /sign-in?code={}", server.hub.browsers().new_link(role, now()).unwrap())
}

/// Signs a browser in and returns its cookie.
async fn sign_in(server: &Server) -> String {
    let response = send(server, &link(server, ClientRole::Driver), &[]).await;
    response.cookie().expect("a cookie").to_owned()
}

#[tokio::test]
async fn a_link_gives_one_browser_a_cookie_that_opens_the_page() {
    let server = server().await;
    assert_eq!(send(&server, "GET /", &[]).await.status, 401);
    let link = link(&server, ClientRole::Observer);
    let response = send(&server, &link, &[("User-Agent", "Firefox")]).await;
    assert_eq!((response.status, response.header("location")), (303, Some("/")));
    let cookie = response.header("set-cookie").unwrap().to_lowercase();
    for part in ["; httponly", "; samesite=lax", "; path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    // Without a domain only this host gets it.
    assert!(!cookie.contains("domain") && !cookie.contains("secure"), "{cookie}");
    let cookie = response.cookie().unwrap();
    let page = send(&server, "GET /", &[("Cookie", &format!("a=b; {cookie}; c=d"))]).await;
    assert_eq!((page.status, page.body.as_str()), (200, "the page for Observer"));
    assert_eq!(send(&server, &link, &[]).await.status, 403, "a link works once");
    let again = send(&server, &link, &[("Cookie", cookie)]).await;
    assert_eq!((again.status, again.cookie()), (303, None), "a browser that is signed in may open it again");
    for wrong in ["parlor=x", &cookie[..cookie.len() - 1], &format!("x{cookie}")] {
        assert_eq!(send(&server, "GET /", &[("Cookie", wrong)]).await.status, 401, "{wrong}");
    }
    assert_eq!(send(&server, "GET /sign-in", &[]).await.status, 403);
}

#[tokio::test]
async fn browsers_are_signed_in_on_the_host_of_the_page_only() {
    let server = server().await;
    let port = server.address.port();
    let link = link(&server, ClientRole::Driver);
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        let response = send(&server, &link, &[("Host", &host)]).await;
        assert_eq!((response.status, response.cookie()), (307, None), "{host}");
        let location = format!("http://parlor.localhost:{port}{}", link.strip_prefix("GET ").unwrap());
        assert_eq!(response.header("location"), Some(location.as_str()));
    }
    for host in [
        format!("evil.example:{port}"),
        format!("x.parlor.localhost:{port}"),
        "parlor.localhost:1".to_owned(),
    ] {
        assert_eq!(send(&server, &link, &[("Host", &host)]).await.status, 403, "{host}");
    }
    let headers = [("Host", "parlor.example"), ("X-Forwarded-Proto", "https")];
    let response = send(&server, &link, &headers).await;
    assert_eq!(response.status, 303);
    assert!(response.header("set-cookie").unwrap().ends_with("; Secure"));
}

#[tokio::test]
async fn only_the_page_itself_gets_tickets_and_signs_out() {
    let server = server().await;
    let cookie = sign_in(&server).await;
    let own = format!("http://{}", page_host(&server));
    let port = server.address.port();
    for path in ["POST /ticket", "POST /sign-out"] {
        for origin in [
            "null".to_owned(),
            "https://evil.example".to_owned(),
            format!("http://localhost:{port}"),
            "http://parlor.localhost:1".to_owned(),
        ] {
            let response = send(&server, path, &[("Cookie", &cookie), ("Origin", &origin)]).await;
            assert_eq!(response.status, 403, "{path} of {origin}");
        }
        let cross = [("Cookie", cookie.as_str()), ("Origin", &own), ("Sec-Fetch-Site", "cross-site")];
        assert_eq!(send(&server, path, &cross).await.status, 403);
        assert_eq!(send(&server, path, &[("Cookie", &cookie)]).await.status, 403, "{path} without an origin");
        assert_eq!(send(&server, path, &[("Origin", &own)]).await.status, 401, "{path} without a cookie");
        let get = path.replace("POST", "GET");
        assert_eq!(send(&server, &get, &[("Cookie", &cookie), ("Origin", &own)]).await.status, 405);
    }
    let headers = [("Cookie", cookie.as_str()), ("Origin", own.as_str())];
    let ticket = send(&server, "POST /ticket", &headers).await;
    assert_eq!(ticket.status, 200);
    assert!(server.hub.browsers().redeem(&ticket.body, now()).is_some());
    assert!(server.hub.browsers().redeem(&ticket.body, now()).is_none());
    let out = send(&server, "POST /sign-out", &headers).await;
    assert_eq!(out.status, 303);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(send(&server, "GET /", &[("Cookie", &cookie)]).await.status, 401);
}

#[tokio::test]
async fn a_ticket_works_once_and_only_for_the_browser_that_got_it() {
    let server = server().await;
    let own = format!("http://{}", page_host(&server));
    let [one, two] = [sign_in(&server).await, sign_in(&server).await];
    let ticket = async || {
        let headers = [("Cookie", one.as_str()), ("Origin", own.as_str())];
        format!("GET /live?ticket={}", send(&server, "POST /ticket", &headers).await.body)
    };
    let open = async |request: &str, cookie: &str| {
        send(&server, request, &[("Cookie", cookie), ("Origin", &own)]).await.status
    };
    let request = ticket().await;
    // It is valid, and what is missing is only the handshake of a WebSocket.
    assert_ne!(open(&request, &one).await, 403);
    assert_eq!(open(&request, &one).await, 403, "it was used");
    let request = ticket().await;
    assert_eq!(open(&request, &two).await, 403, "another browser got it");
    assert_eq!(open(&request, &one).await, 403, "it was used");
    assert_eq!(open("GET /live", &one).await, 403);
}

#[tokio::test]
async fn no_response_can_be_framed_guessed_or_cached() {
    let server = server().await;
    let cookie = sign_in(&server).await;
    for request in ["GET /", "GET /health", "GET /nothing", "GET /sign-in?code=x", "GET /acp"] {
        for headers in [&[][..], &[("Cookie", cookie.as_str())]] {
            let response = send(&server, request, headers).await;
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
                ("cross-origin-resource-policy", "same-origin"),
            ] {
                assert_eq!(response.header(name), Some(value), "{request}: {name}");
            }
            let policy = response.header("content-security-policy").unwrap();
            assert!(
                policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
                "{policy}"
            );
        }
    }
}
