//! Delivers notifications to one target, one after the other.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::event::NotifyEvent;
use crate::config::{NotifyFormat, NotifySink, NotifyTarget};
use crate::http_client::post;

/// Pending notifications of a target.
pub(super) const MAX_PENDING: usize = 64;

/// How long an address may take to respond.
const URL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a program may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses before a delivery is tried again.
const RETRIES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// Bytes of the standard error of a program that failed, for the log.
const MAX_STDERR: u64 = 2048;

/// How long the rest of the standard error is waited for when the program has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// A notification: an event and the address of the page.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) event: NotifyEvent,
    pub(super) page: Option<String>,
}

/// Why a notification was not delivered.
#[derive(Debug)]
enum Failure {
    /// A later attempt may succeed.
    Temporary(String),
    Final(String),
}

/// Delivers notifications until no more can arrive.
pub(super) async fn run(target: Arc<NotifyTarget>, mut pending: mpsc::Receiver<Delivery>) {
    while let Some(delivery) = pending.recv().await {
        let event = delivery.event.kind.name();
        if let Err(reason) = deliver(&target, &delivery).await {
            tracing::warn!(target = target.name(), event, "cannot deliver a notification: {reason}");
        }
    }
}

async fn deliver(target: &NotifyTarget, delivery: &Delivery) -> Result<(), String> {
    let mut retries = RETRIES.iter();
    loop {
        let outcome = match &target.sink {
            NotifySink::Url { .. } => {
                timeout(URL_TIMEOUT, post_event(target, delivery)).await.unwrap_or_else(|_| {
                    Err(Failure::Temporary(format!("no response within {} s", URL_TIMEOUT.as_secs())))
                })
            }
            NotifySink::Command(words) => {
                run_command(words, delivery, COMMAND_TIMEOUT).await.map_err(Failure::Final)
            }
        };
        match (outcome, retries.next()) {
            (Ok(()), _) => return Ok(()),
            (Err(Failure::Temporary(reason)), Some(pause)) => {
                tracing::debug!(
                    target = target.name(),
                    "cannot deliver a notification, will try again: {reason}"
                );
                sleep(*pause).await;
            }
            (Err(Failure::Temporary(reason) | Failure::Final(reason)), _) => return Err(reason),
        }
    }
}

async fn post_event(target: &NotifyTarget, Delivery { event, page }: &Delivery) -> Result<(), Failure> {
    let NotifySink::Url { url, format, headers } = &target.sink else { return Ok(()) };
    let page = page.as_deref();
    let sent = match format {
        NotifyFormat::Json => post(url, headers, "application/json", event.to_json(page)).await,
        NotifyFormat::Ntfy => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let url = format!("{url}{separator}{}", event.ntfy_query(page));
            post(&url, headers, "text/plain; charset=utf-8", event.body()).await
        }
    };
    match sent {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(Failure::Temporary(format!("status {status}")))
        }
        Ok(status) => Err(Failure::Final(format!("status {status}"))),
        // An address that cannot be used, or a certificate that is not trusted.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            Err(Failure::Final(error.to_string()))
        }
        Err(error) => Err(Failure::Temporary(error.to_string())),
    }
}

/// Runs a program in a process group of its own, which is killed if it takes too long.
async fn run_command(
    words: &[String],
    Delivery { event, page }: &Delivery,
    limit: Duration,
) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("the command is empty")?;
    let page = page.as_deref();
    let mut child = Command::new(program)
        .args(args)
        .envs(event.variables(page))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let input = format!("{}\n", event.to_json(page));
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program need not read it.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let read = async {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = (&mut stderr).take(MAX_STDERR).read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    // A child of the program may keep the standard error open: only the program itself is waited for.
    let ended = async {
        let mut streams = std::pin::pin!(async { tokio::join!(write, read).1 });
        tokio::select! {
            stderr = &mut streams => (child.wait().await, stderr),
            status = child.wait() => (status, timeout(STDERR_TIMEOUT, streams).await.unwrap_or_default()),
        }
    };
    let Ok((status, stderr)) = timeout(limit, ended).await else {
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(format!("it did not end within {} s", limit.as_secs()));
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if stderr.is_empty() => Err(status.to_string()),
        Ok(status) => Err(format!("{status}: {stderr}")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;

    use super::super::event::tests::event;
    use super::*;
    use crate::config::NotifyKind;

    fn delivery() -> Delivery {
        Delivery { event: event(NotifyKind::NeedsYou), page: Some("http://page".to_owned()) }
    }

    /// An address that responds with these statuses, and the requests that it gets: the first line, the headers and the body.
    async fn endpoint(
        statuses: &'static [&'static str],
    ) -> (String, mpsc::Receiver<(String, Vec<String>, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/topic", listener.local_addr().unwrap());
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            for status in statuses {
                let mut stream = BufReader::new(listener.accept().await.unwrap().0);
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.unwrap();
                    if line.trim().is_empty() {
                        break;
                    }
                    lines.push(line.trim().to_lowercase());
                }
                let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.unwrap().parse().unwrap()];
                stream.read_exact(&mut body).await.unwrap();
                let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(response.as_bytes()).await.unwrap();
                let first = lines.remove(0);
                sender.send((first, lines, String::from_utf8(body).unwrap())).await.unwrap();
            }
        });
        (url, receiver)
    }

    fn target(url: String, format: NotifyFormat) -> NotifyTarget {
        let headers = BTreeMap::from([("X-Token".to_owned(), "s3cret".to_owned())]);
        NotifyTarget::new(NotifySink::Url { url, format, headers })
    }

    #[tokio::test]
    async fn an_address_gets_json_with_its_headers() {
        let (url, mut requests) = endpoint(&["204 No Content"]).await;
        deliver(&target(url, NotifyFormat::Json), &delivery()).await.unwrap();
        let (first, headers, body) = requests.recv().await.unwrap();
        assert_eq!(first, "post /topic http/1.1");
        assert!(headers.contains(&"x-token: s3cret".to_owned()), "{headers:?}");
        assert!(headers.contains(&"content-type: application/json".to_owned()), "{headers:?}");
        assert_eq!(body, event(NotifyKind::NeedsYou).to_json(Some("http://page")));
    }

    #[tokio::test]
    async fn ntfy_gets_the_text_with_title_and_link_in_the_query() {
        let (url, mut requests) = endpoint(&["200 OK"]).await;
        deliver(&target(url, NotifyFormat::Ntfy), &delivery()).await.unwrap();
        let (first, _, body) = requests.recv().await.unwrap();
        assert!(first.starts_with("post /topic?title=claude%20needs%20you&priority=high"), "{first}");
        assert!(first.contains("click=http%3a%2f%2fpage%2fs%2f"), "{first}");
        assert_eq!(body, "Fix the café: run make");
    }

    #[tokio::test]
    async fn a_delivery_is_tried_again_after_a_server_error_and_not_after_a_client_error() {
        let (url, mut requests) = endpoint(&["503 Busy", "200 OK", "403 Forbidden"]).await;
        let target = target(url, NotifyFormat::Json);
        deliver(&target, &delivery()).await.unwrap();
        assert!(requests.recv().await.is_some() && requests.recv().await.is_some());
        assert_eq!(deliver(&target, &delivery()).await, Err("status 403 Forbidden".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_to_an_address_that_does_not_respond_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let started = tokio::time::Instant::now();
        let failed = deliver(&target(url, NotifyFormat::Json), &delivery()).await;
        assert_eq!(failed, Err("no response within 10 s".to_owned()));
        assert_eq!(started.elapsed().as_secs(), 42, "three attempts and two pauses");
    }

    #[tokio::test]
    async fn a_program_gets_the_event_in_its_environment_and_input() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("delivered");
        let script =
            format!("{{ cat; echo \"$PARLOR_EVENT|$PARLOR_TEXT|$PARLOR_URL\"; }} > {}", file.display());
        let command = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
        run_command(&command(&script), &delivery(), COMMAND_TIMEOUT).await.unwrap();
        let delivered = std::fs::read_to_string(file).unwrap();
        let json = event(NotifyKind::NeedsYou).to_json(Some("http://page"));
        assert_eq!(delivered, format!("{json}\nneeds_you|run make|http://page/s/s%201#t-x\n"));
        let failed =
            run_command(&command("echo 'no display' >&2; exit 3"), &delivery(), COMMAND_TIMEOUT).await;
        assert_eq!(failed, Err("exit status: 3: no display".to_owned()));
        let missing = run_command(&["/nothing/here".to_owned()], &delivery(), COMMAND_TIMEOUT).await;
        assert!(missing.unwrap_err().contains("No such file"));
        // It reads nothing and leaves a child behind, which keeps its standard error open.
        let child = dir.path().join("child");
        let script = format!("sleep 1000 & echo $! > {}", child.display());
        run_command(&command(&script), &delivery(), Duration::from_secs(10)).await.unwrap();
        let child = std::fs::read_to_string(child).unwrap().trim().parse().ok().and_then(Pid::from_raw);
        rustix::process::kill_process(child.unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("child");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let words = ["sh", "-c", &script].map(str::to_owned);
        let failed = run_command(&words, &delivery(), Duration::from_secs(2)).await;
        assert_eq!(failed, Err("it did not end within 2 s".to_owned()));
        let child = std::fs::read_to_string(file).expect("the program ran").trim().to_owned();
        // A killed process is a zombie until its parent has taken notice of it.
        let is_over = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
            Err(_) => true,
        };
        let killed = async {
            while !is_over() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), killed).await.expect("the child is killed");
    }
}
