//! The content of a prompt: words, standard input, an editor, files and images.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use parlor_client::{Json, Object, Prompt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::command_error::CommandError;
use crate::tty::Tty;

/// How long a socket may send nothing until the words of the command line are the whole prompt.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(3);
/// After this time without input, the command says what it waits for.
const PIPE_NOTICE: Duration = Duration::from_secs(2);

/// The arguments and options that make up a prompt.
#[derive(Args)]
pub(crate) struct PromptInput {
    /// Send these words; `-` stands for standard input
    #[arg(value_name = "TEXT", trailing_var_arg = false)]
    words: Vec<String>,
    /// Attach this file; may be repeated
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Attach this image (PNG, JPEG, GIF, WebP); may be repeated
    #[arg(short, long, value_name = "IMAGE")]
    image: Vec<PathBuf>,
    /// Write the prompt in `$VISUAL` or `$EDITOR`, starting with TEXT and standard input
    #[arg(short, long)]
    edit: bool,
}

/// The content of a prompt, before it is known which kinds of content the agent accepts.
pub(crate) struct PromptContent {
    text: String,
    files: Vec<(PathBuf, Option<String>)>,
    images: Vec<Object>,
}

impl PromptInput {
    /// Reads standard input, the files and the images, and opens the editor.
    pub(crate) fn read(&self) -> Result<PromptContent, CommandError> {
        let mut text = self.words.join(" ");
        let has_input = match StdinSource::get() {
            _ if text == "-" => true,
            Some(source) => text.is_empty() || source.is_read_beside_words(),
            None => false,
        };
        if has_input {
            let input = read_stdin()?;
            text = match (text.as_str(), input.trim().is_empty()) {
                ("-" | "", _) => input,
                (_, true) => text,
                (_, false) => format!("{text}\n\n{input}"),
            };
        }
        if self.edit {
            text = edit(&text)?;
        }
        if text.trim().is_empty() && self.file.is_empty() && self.image.is_empty() {
            return Err(
                CommandError::bad_input("the prompt is empty").hint("give a text: parlor prompt TEXT...")
            );
        }
        let files = self.file.iter().map(|path| read_file(path)).collect::<Result<_, _>>()?;
        let images = self.image.iter().map(|path| read_image(path)).collect::<Result<_, _>>()?;
        Ok(PromptContent { text, files, images })
    }
}

impl PromptContent {
    /// The prompt for an agent with these capabilities, as `initialize` reported them.
    pub(crate) fn prompt(self, info: &Object) -> Result<Prompt, CommandError> {
        let capabilities = info.get_object("capabilities").and_then(|all| all.get_object("session"));
        let accepted = capabilities.and_then(|session| session.get_object("prompt")).unwrap_or_default();
        let accepts = |name: &str| accepted.get(name).is_some_and(|value| !value.is_null());
        if !self.images.is_empty() && !accepts("image") {
            return Err(CommandError::bad_input("the agent does not accept images"));
        }
        let mut blocks = Vec::new();
        if !self.text.trim().is_empty() {
            blocks.push(Object::new().with("type", "text").with("text", self.text));
        }
        for (path, text) in self.files {
            let uri = format!("file://{}", path.display());
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            blocks.push(match text.filter(|_| accepts("embeddedContext")) {
                Some(text) => {
                    let resource =
                        Object::new().with("uri", uri).with("mimeType", "text/plain").with("text", text);
                    Object::new().with("type", "resource").with("resource", resource.to_json())
                }
                // Every agent accepts links.
                None => Object::new().with("type", "resource_link").with("uri", uri).with("name", name),
            });
        }
        blocks.extend(self.images);
        Ok(Prompt::blocks(Json::array(blocks)))
    }
}

/// What standard input is, if a prompt may come from it.
#[derive(Clone, Copy)]
enum StdinSource {
    File,
    Pipe,
    /// Some programs connect their children with sockets, also if they send nothing.
    Socket,
}

impl StdinSource {
    fn get() -> Option<Self> {
        let kind = std::fs::metadata("/dev/stdin").ok()?.file_type();
        match kind {
            _ if kind.is_file() => Some(Self::File),
            _ if kind.is_fifo() => Some(Self::Pipe),
            _ if kind.is_socket() => Some(Self::Socket),
            _ => None,
        }
    }

    /// Whether the input is read if there are words as well. Says on standard error what is waited for, or left out.
    fn is_read_beside_words(self) -> bool {
        match self {
            Self::Pipe if !stdin_is_ready(PIPE_NOTICE) => {
                print_stderr!(
                    "waiting for the end of standard input (`< /dev/null` sends the prompt without it)"
                );
                true
            }
            Self::Socket if !stdin_is_ready(SOCKET_TIMEOUT) => {
                print_stderr!(
                    "standard input sent nothing; the prompt is sent without it (`-` waits for it)"
                );
                false
            }
            Self::File | Self::Pipe | Self::Socket => true,
        }
    }
}

/// Whether standard input has something to read, or has ended, within a time.
fn stdin_is_ready(timeout: Duration) -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec { tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    // If it cannot be polled, reading says why.
    poll(&mut polled, Some(&timeout)).map_or(true, |ready| ready > 0)
}

fn read_stdin() -> Result<String, CommandError> {
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| CommandError::bad_input(format_args!("cannot read standard input: {error}")))?;
    Ok(text)
}

/// Reads a file; its text is `None` if it is not UTF-8.
fn read_file(path: &Path) -> Result<(PathBuf, Option<String>), CommandError> {
    let bytes = read_bytes(path)?;
    let path = std::fs::canonicalize(path).map_err(CommandError::bad_input)?;
    Ok((path, String::from_utf8(bytes).ok()))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, CommandError> {
    std::fs::read(path)
        .map_err(|error| CommandError::bad_input(format_args!("cannot read {}: {error}", path.display())))
}

fn read_image(path: &Path) -> Result<Object, CommandError> {
    let bytes = read_bytes(path)?;
    let mime = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => {
            return Err(CommandError::bad_input(format_args!(
                "{} is not a PNG, JPEG, GIF or WebP image",
                path.display()
            ))
            .hint("-f attaches any file"));
        }
    };
    Ok(Object::new().with("type", "image").with("mimeType", mime).with("data", STANDARD.encode(bytes)))
}

/// Opens the editor with a text, and returns the text that was saved.
fn edit(text: &str) -> Result<String, CommandError> {
    let editor =
        ["VISUAL", "EDITOR"].into_iter().filter_map(std::env::var_os).find(|editor| !editor.is_empty());
    let tty = Tty::open();
    if tty.is_none() && editor.is_none() {
        return Err(CommandError::bad_input("-e cannot open an editor: there is no terminal").hint(
            "give the text: parlor prompt TEXT..., or set EDITOR to a program that needs no terminal",
        ));
    }
    let editor = editor.unwrap_or_else(|| "vi".into());
    let nanos = jiff::Timestamp::now().as_nanosecond();
    let path = std::env::temp_dir().join(format!("parlor-prompt-{}-{nanos}.md", std::process::id()));
    let failed =
        |error: io::Error| CommandError::failed(format_args!("cannot edit {}: {error}", path.display()));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    // The variable may have arguments, as in `code --wait`.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{} \"$1\"", editor.to_string_lossy()), "sh"]).arg(&path);
    // Standard input may be text of the prompt, and standard output a file for the answer.
    if !io::stdin().is_terminal() {
        command.stdin(terminal(tty.as_ref()));
    }
    if !io::stdout().is_terminal() {
        command.stdout(terminal(tty.as_ref()));
    }
    let status = command.status();
    let edited = std::fs::read_to_string(&path);
    let _ = std::fs::remove_file(&path);
    let status = status.map_err(failed)?;
    if !status.success() {
        let message = format!("the editor '{}' failed with {status}; nothing was sent", editor.display());
        return Err(CommandError::failed(message));
    }
    edited.map_err(failed)
}

/// The terminal as a stream of the editor, or nothing.
fn terminal(tty: Option<&Tty>) -> Stdio {
    tty.and_then(|tty| tty.stream().ok()).map_or_else(Stdio::null, Stdio::from)
}
