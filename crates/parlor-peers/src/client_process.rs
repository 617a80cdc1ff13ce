//! A client of another project as a process, on pipes or on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use parlor_testkit::wait::TIMEOUT;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The size of the terminal.
const COLUMNS: u16 = 100;
const ROWS: u16 = 40;

/// A running client. It is killed when it is dropped.
#[derive(Debug)]
pub struct ClientProcess {
    child: Child,
    input: Option<Box<dyn Writable>>,
    output: Arc<Mutex<Vec<u8>>>,
    is_terminal: bool,
}

/// Where its input is written to.
trait Writable: Write + Send + std::fmt::Debug {}

impl<T: Write + Send + std::fmt::Debug> Writable for T {}

impl ClientProcess {
    /// Starts a client on pipes.
    pub fn on_pipes(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        let output = Arc::default();
        collect(child.stdout.take().expect("it is a pipe"), &output);
        collect(child.stderr.take().expect("it is a pipe"), &output);
        let input: Box<dyn Writable> = Box::new(child.stdin.take().expect("it is a pipe"));
        Ok(Self { child, input: Some(input), output, is_terminal: false })
    }

    /// Starts a client on a terminal.
    pub fn on_terminal(program: &Command) -> Result<Self, String> {
        let text = |error: rustix::io::Errno| error.to_string();
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).map_err(text)?;
        grantpt(&person).map_err(text)?;
        unlockpt(&person).map_err(text)?;
        let name = ptsname(&person, Vec::new()).map_err(text)?;
        let line = File::options().read(true).write(true).open(name.to_str().unwrap_or_default());
        let line = line.map_err(|error| error.to_string())?;
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&line, size).map_err(text)?;
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = program.get_current_dir() {
            command.current_dir(directory);
        }
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        let stream = || {
            line.try_clone().map(|line| Stdio::from(OwnedFd::from(line))).map_err(|error| error.to_string())
        };
        command.stdin(stream()?).stdout(stream()?).stderr(stream()?);
        let child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        drop((command, line));
        let person = File::from(person);
        let output = Arc::default();
        collect(person.try_clone().map_err(|error| error.to_string())?, &output);
        Ok(Self { child, input: Some(Box::new(person)), output, is_terminal: true })
    }

    /// What it has written: all of it, or what is on the screen.
    pub fn text(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !self.is_terminal {
            return String::from_utf8_lossy(&output).into_owned();
        }
        let nonzero = |number| NonZero::new(number).expect("a screen has rows and columns");
        let mut parser = vt100::Parser::new(nonzero(ROWS), nonzero(COLUMNS), 0);
        parser.process(&output);
        let rows: Vec<_> = parser.screen().rows(0, COLUMNS).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n")
    }

    /// Waits until it has written a text.
    pub fn wait_for(&self, text: &str) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.text().contains(text) {
            if Instant::now() > deadline {
                return Err(format!("it does not show {text:?}:\n{}", self.text()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Types a text.
    pub fn write(&mut self, text: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("its input is closed")?;
        input
            .write_all(text.as_bytes())
            .and_then(|()| input.flush())
            .map_err(|error| format!("it does not read: {error}"))
    }

    /// Closes its input and waits until it has ended.
    pub fn wait(&mut self) -> Result<(), String> {
        self.input = None;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if self.child.try_wait().map_err(|error| error.to_string())?.is_some() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("it does not end:\n{}", self.text()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
