//! A client as a process, on pipes, on a terminal or in a browser.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use parlor_testkit::browser::{Browser, Key, Tab};
use parlor_testkit::screen::Screen;
use parlor_testkit::wait::TIMEOUT;

/// The size of the terminal.
const COLUMNS: u16 = 100;
const ROWS: u16 = 40;

/// A running client. It is killed when it is dropped.
#[derive(Debug)]
pub struct ClientProcess(Process);

#[derive(Debug)]
enum Process {
    OnPipes { child: Child, input: Option<ChildStdin>, output: Arc<Mutex<Vec<u8>>> },
    OnTerminal(Screen),
    InBrowser { tab: Tab, _browser: Browser },
}

impl ClientProcess {
    /// Starts a client on pipes.
    pub fn on_pipes(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        let output = Arc::default();
        collect(child.stdout.take().expect("it is a pipe"), &output);
        collect(child.stderr.take().expect("it is a pipe"), &output);
        let input = child.stdin.take();
        Ok(Self(Process::OnPipes { child, input, output }))
    }

    /// Starts a client on a terminal.
    pub fn on_terminal(program: &Command) -> Self {
        Self(Process::OnTerminal(Screen::run(program, COLUMNS, ROWS)))
    }

    /// Opens the page with a link that signs the browser in.
    pub fn in_browser(link: &str) -> Self {
        let browser = Browser::start();
        let tab = browser.open(link);
        Self(Process::InBrowser { tab, _browser: browser })
    }

    /// The tab of a client in a browser.
    pub fn tab(&self) -> Option<&Tab> {
        match &self.0 {
            Process::InBrowser { tab, .. } => Some(tab),
            Process::OnPipes { .. } | Process::OnTerminal(_) => None,
        }
    }

    /// Sends a prompt in its session.
    pub fn prompt(&mut self, text: &str) -> Result<(), String> {
        let end = if matches!(self.0, Process::OnTerminal(_)) { "\r" } else { "\n" };
        self.write(&format!("{text}{end}"))
    }

    /// What it has written: all of it, or what is on the screen.
    pub fn text(&self) -> String {
        match &self.0 {
            Process::OnPipes { output, .. } => {
                let output = output.lock().unwrap_or_else(PoisonError::into_inner);
                String::from_utf8_lossy(&output).into_owned()
            }
            Process::OnTerminal(screen) => screen.text(),
            Process::InBrowser { tab, .. } => tab.text(),
        }
    }

    /// Waits until it has written a text.
    pub fn wait_for(&self, text: &str) -> Result<(), String> {
        self.wait_until(&format!("show {text:?}"), |shown| shown.contains(text)).map(drop)
    }

    /// Waits until what it shows meets a condition, and returns it. `goal` completes "it does not".
    pub fn wait_until(&self, goal: &str, is_met: impl Fn(&str) -> bool) -> Result<String, String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let shown = self.text();
            if is_met(&shown) {
                return Ok(shown);
            }
            if Instant::now() > deadline {
                return Err(format!("it does not {goal}:\n{shown}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Types a text.
    pub fn write(&mut self, text: &str) -> Result<(), String> {
        let written = match &mut self.0 {
            Process::OnPipes { input, .. } => {
                let input = input.as_mut().ok_or("its input is closed")?;
                input.write_all(text.as_bytes())
            }
            Process::OnTerminal(screen) => screen.try_press(text),
            Process::InBrowser { tab, .. } => {
                tab.click("#p");
                tab.enter(text.trim_end());
                tab.press_key(Key::Enter, 0);
                Ok(())
            }
        };
        written.map_err(|error| format!("it does not read: {error}"))
    }

    /// Closes its input and waits until it has ended by itself: its exit code.
    pub fn wait(&mut self) -> Result<i32, String> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                return Err(format!("it does not end:\n{}", self.text()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let code = match &mut self.0 {
            Process::OnPipes { child, .. } => child.wait().map_err(|error| error.to_string())?.code(),
            Process::OnTerminal(screen) => screen.wait(),
            Process::InBrowser { .. } => None,
        };
        code.ok_or_else(|| format!("a signal ended it:\n{}", self.text()))
    }

    fn has_ended(&mut self) -> Result<bool, String> {
        match &mut self.0 {
            Process::OnPipes { child, input, .. } => {
                *input = None;
                Ok(child.try_wait().map_err(|error| error.to_string())?.is_some())
            }
            Process::OnTerminal(screen) => Ok(screen.has_ended()),
            Process::InBrowser { .. } => Ok(false),
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // A screen and a browser end by themselves.
        if let Process::OnPipes { child, .. } = &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn collect(mut stream: impl Read + Send + 'static, output: &Arc<Mutex<Vec<u8>>>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            output.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..count]);
        }
    });
}
