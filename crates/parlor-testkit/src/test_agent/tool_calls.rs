//! Steps that report tool calls: an edit, and programs that the agent or the client runs.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parlor_json::{Object, ObjectWriter};

use super::encode::{Encoder, Tool, tool_terminal, tool_text, update};
use super::json::list;
use super::session::Event;
use super::turn::{End, Turn};

impl Turn {
    /// Sends a tool call from pending to completed.
    pub(super) fn tool(&self, title: &str) {
        let id = self.agent.new_id();
        let path = format!("{}/notes.txt", self.cwd().trim_end_matches('/'));
        let status =
            |status| Encoder::tool_update(&Tool { id: &id, status: Some(status), ..Tool::default() });
        self.update(&self.encoder.tool_call(&Tool {
            id: &id,
            title: Some(title),
            kind: Some("edit"),
            status: Some("pending"),
            ..Tool::default()
        }));
        self.update(&status("in_progress"));
        let contents =
            [tool_text("One line changed."), self.encoder.diff(&path, "Hello\n", "Hello, world\n")];
        self.encoder.tool_content(&id, &contents).iter().for_each(|content| self.update(content));
        self.update(&status("completed"));
    }

    /// Runs a shell command, in a terminal of the client in v1 and in one of the agent in v2.
    pub(super) fn terminal(&mut self, command: &str) -> Result<(), End> {
        if !self.encoder.is_v1() {
            return self.own_terminal(command);
        }
        if self.client.has_capability(&["terminal"]) {
            return self.client_terminal(command);
        }
        self.send_message("This client has no terminals.")
    }

    fn client_terminal(&mut self, command: &str) -> Result<(), End> {
        let args = list([json_text("-c"), json_text(command)]);
        let params =
            self.session_params().str("command", "sh").raw("args", &args).str("cwd", &self.cwd()).finish();
        let made = self.request("terminal/create", params)?;
        let made = made.map(|made| made.to_object().and_then(|made| made.get_string("terminalId")));
        let terminal = match made {
            Ok(Some(terminal)) => terminal,
            Ok(None) => return self.send_message("The terminal has no id."),
            Err(error) => return self.send_message(&format!("No terminal: {error}")),
        };
        let id = self.agent.new_id();
        self.update(&self.encoder.tool_call(&terminal_call(&id, command, &terminal)));
        let about = || self.session_params().str("terminalId", &terminal).finish();
        let wait = || {
            let exit = self.request("terminal/wait_for_exit", about())?;
            Ok::<_, End>((exit, self.request("terminal/output", about())?))
        };
        let Ok((exit, output)) = wait() else {
            // The turn does not wait for the responses, because it has ended when they arrive.
            self.send("terminal/kill", about());
            self.send("terminal/release", about());
            self.end_call(&id, self.encoder.cancelled_status());
            return Err(End::Cancelled);
        };
        let _released = self.request("terminal/release", about());
        let field = |name: &str| {
            let exit = Object::parse(exit.as_ref().ok()?.raw()).ok()?;
            exit.get(name).filter(|value| !value.is_null()).map(|value| value.as_str().to_owned())
        };
        let code = field("exitCode").or_else(|| field("signal")).unwrap_or_else(|| "nothing".to_owned());
        self.end_call(&id, if code == "0" { "completed" } else { "failed" });
        let output = output.ok().and_then(|output| output.to_object()?.get_string("output"));
        self.send_message(&format!(
            "It ended with {code} and wrote: {}",
            output.unwrap_or_default().trim_end()
        ))
    }

    fn own_terminal(&mut self, command: &str) -> Result<(), End> {
        let (id, terminal) = (self.agent.new_id(), self.agent.new_id());
        let about = |kind: &str| update(kind).str("terminalId", &terminal);
        self.update(&about("terminal_update").str("command", command).str("cwd", &self.cwd()).finish());
        self.update(&self.encoder.tool_call(&terminal_call(&id, command, &terminal)));
        self.agent.out.flush();
        let mut child = match shell(command, &self.cwd(), self.sender.clone()) {
            Ok(child) => child,
            Err(error) => {
                self.end_call(&id, "failed");
                return self.send_message(&format!("It cannot be run: {error}"));
            }
        };
        let chunk = |bytes: &[u8]| {
            about("terminal_output_chunk").str("data", &BASE64_STANDARD.encode(bytes)).finish()
        };
        let was_cancelled = loop {
            match self.events.recv() {
                Ok(Event::Output(bytes)) if bytes.is_empty() => break false,
                Ok(Event::Output(bytes)) => {
                    self.update(&chunk(&bytes));
                    self.agent.out.flush();
                }
                Ok(Event::Response(..) | Event::Steered(_)) => {}
                Ok(Event::Cancel) | Err(_) => break true,
            }
        };
        if was_cancelled {
            kill(&mut child);
        }
        let status = child.wait().ok();
        let code = status.and_then(|status| status.code());
        let exit = match code {
            Some(code) => ObjectWriter::new().raw("exitCode", &code.to_string()).finish(),
            None => ObjectWriter::new().str("signal", "SIGKILL").finish(),
        };
        self.update(&about("terminal_update").raw("exitStatus", &exit).finish());
        self.end_call(
            &id,
            match code {
                _ if was_cancelled => self.encoder.cancelled_status(),
                Some(0) => "completed",
                Some(_) | None => "failed",
            },
        );
        if was_cancelled { Err(End::Cancelled) } else { Ok(()) }
    }

    /// Starts a program that outlives the turn.
    pub(super) fn child(&mut self, own_session: bool) -> Result<(), End> {
        let mut command = Command::new(if own_session { "setsid" } else { "sleep" });
        if own_session {
            command.arg("sleep");
        }
        // With the agent's standard output, the client would never reach its end.
        command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => self.send_message(&child.id().to_string()),
            Err(error) => self.send_message(&format!("It cannot be started: {error}")),
        }
    }

    fn end_call(&self, id: &str, status: &str) {
        self.update(&Encoder::tool_update(&Tool { id, status: Some(status), ..Tool::default() }));
    }

    fn cwd(&self) -> String {
        self.session.lock().saved.cwd.clone()
    }
}

fn terminal_call<'a>(id: &'a str, command: &'a str, terminal: &str) -> Tool<'a> {
    Tool {
        id,
        title: Some(command),
        kind: Some("execute"),
        status: Some("in_progress"),
        content: Some(list([tool_terminal(terminal)])),
    }
}

fn json_text(text: &str) -> String {
    parlor_json::string_literal(text)
}

/// Runs a command. Sends its output, of both streams, as it is written, and an empty chunk at the end.
fn shell(command: &str, cwd: &str, output: Sender<Event>) -> io::Result<Child> {
    let (mut reader, writer) = io::pipe()?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    // Programs that the shell starts end with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    // The directory of a session may be on another machine.
    if Path::new(cwd).is_dir() {
        shell.current_dir(cwd);
    }
    let child = shell.spawn()?;
    // The command holds the writing ends of the pipe; while one is open here, the output does not end.
    drop(shell);
    thread::spawn(move || {
        let mut buffer = vec![0; 8192];
        loop {
            let read = reader.read(&mut buffer).unwrap_or(0);
            // A cancelled turn no longer receives.
            if output.send(Event::Output(buffer[..read].to_vec())).is_err() || read == 0 {
                return;
            }
        }
    });
    Ok(child)
}

/// Kills a command and the processes that it started. Errors mean that it has exited.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    let _ = child.kill();
}
