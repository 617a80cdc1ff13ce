//! Owns the terminal and the connections: sends events to the [`App`] and runs its effects.

mod backend;
mod calls;
mod clipboard;
mod escape;
mod external;
mod files;
mod prompt;
mod search;
mod target;
mod terminal;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crossterm::event::{
    Event as TerminalEvent, EventStream, KeyEventKind, MouseButton, MouseEvent, MouseEventKind,
};
use futures_util::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;

use self::backend::Backend;
use self::escape::EscapeFilter;
pub(crate) use self::search::MAX_HITS;
pub use self::target::Target;
use self::terminal::{Screen, is_in_tmux};
use crate::clean::Clean;
use crate::{App, Detached, Effect, Event, TerminalOptions};

/// The shortest time between two frames. Timers end up to a millisecond late, so this is 30 frames per second.
const FRAME: Duration = Duration::from_millis(32);

/// How many events wait for the client.
const MAX_EVENTS: usize = 1024;

/// How many events are applied before the screen is drawn again.
const MAX_BATCH: usize = 256;

/// How many rows a turn of the wheel scrolls.
const WHEEL_ROWS: isize = 3;

/// Why the client ended.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] std::io::Error),
    /// The agent cannot be started, or the server cannot be used.
    #[error("{0}")]
    Start(String),
}

/// Runs the client until it is detached, and returns the session that was open. It must run on a single-threaded runtime:
/// transcripts are read between updates and not copied.
pub async fn run(options: TerminalOptions, target: Target) -> Result<Option<Detached>, ShellError> {
    let (sender, events) = mpsc::channel(MAX_EVENTS);
    let login = options.login.clone();
    let app = App::new(options, Timestamp::now());
    let backend = Backend::start(target, sender.clone()).await.map_err(ShellError::Start)?;
    let screen = Screen::open()?;
    let (width, height) = screen.size()?;
    let mut pending = VecDeque::from([Event::Resize(width, height)]);
    // tmux reports the focus only with `focus-events on`, and then at once.
    if is_in_tmux() {
        pending.push_back(Event::FocusUnknown);
    }
    let mut shell = Shell {
        app,
        backend,
        screen,
        input: Some(EventStream::new()),
        escape: EscapeFilter::default(),
        sender,
        login,
        pending,
    };
    shell.run(events).await
}

/// The client with its terminal and its connections.
struct Shell {
    app: App,
    backend: Backend,
    screen: Screen,
    /// The keys; `None` while another program has the terminal.
    input: Option<EventStream>,
    escape: EscapeFilter,
    sender: mpsc::Sender<Event>,
    /// The command that logs in to an agent, whose name follows.
    login: Vec<String>,
    pending: VecDeque<Event>,
}

impl Shell {
    async fn run(&mut self, mut events: mpsc::Receiver<Event>) -> Result<Option<Detached>, ShellError> {
        let mut signals = Signals::new()?;
        let mut next_frame = Instant::now();
        let mut is_dirty = true;
        loop {
            while let Some(event) = self.pending.pop_front() {
                for effect in self.app.update(event, Timestamp::now()) {
                    if effect == Effect::Quit {
                        self.stop().await;
                        return Ok(self.app.detached());
                    }
                    if let Effect::Fail(reason) = effect {
                        self.stop().await;
                        return Err(ShellError::Start(reason));
                    }
                    self.run_effect(effect).await?;
                }
            }
            is_dirty |= self.app.take_dirty();
            if is_dirty && Instant::now() >= next_frame {
                self.screen.draw(|frame| self.app.render(frame))?;
                next_frame = Instant::now() + FRAME;
                is_dirty = false;
            }
            let tick = self.app.next_tick().map(until);
            let frame = is_dirty.then_some(next_frame);
            tokio::select! {
                biased;
                () = signals.ended() => return self.end().await,
                event = next_input(&mut self.input) => match event {
                    Some(Ok(event)) => {
                        let events = self.escape.filter(event, Instant::now());
                        self.pending.extend(events.into_iter().filter_map(translate));
                    }
                    // The terminal is gone.
                    Some(Err(_)) | None => return self.end().await,
                },
                () = sleep_until(self.escape.due()) => {
                    self.pending.extend(self.escape.flush().into_iter().filter_map(translate));
                }
                () = sleep_until(frame) => {}
                Some(event) = events.recv() => {
                    self.pending.push_back(event);
                    // Many changes of a transcript are one.
                    while self.pending.len() < MAX_BATCH && let Ok(event) = events.try_recv() {
                        if !matches!((&event, self.pending.back()), (Event::Changed, Some(Event::Changed))) {
                            self.pending.push_back(event);
                        }
                    }
                }
                () = sleep_until(tick) => self.pending.push_back(Event::Tick),
            }
        }
    }

    async fn run_effect(&mut self, effect: Effect) -> Result<(), ShellError> {
        match effect {
            Effect::Send(call) => self.backend.send(call),
            Effect::Reconnect => self.backend.reconnect(),
            Effect::Copy(text) => clipboard::copy(text, self.sender.clone()),
            Effect::CopyBySequence(text) => self.pending.push_back(clipboard::copy_by_sequence(&text)),
            Effect::Notify(text) => Screen::notify(&Clean::line(&text)),
            Effect::WindowTitle(title) => Screen::set_title(&Clean::line(&title)),
            Effect::OpenLink(url) => self.pending.push_back(external::open_link(&url)),
            Effect::ListFiles(cwd) => files::list(cwd, self.sender.clone()),
            Effect::Redraw => self.screen.clear()?,
            Effect::Suspend => {
                drop(self.input.take());
                self.screen.suspend()?;
                self.input = Some(EventStream::new());
            }
            Effect::Edit(text) => {
                let edited = self.outside(move || external::edit(&text)).await?;
                self.pending.push_front(edited.map_or_else(Event::Failed, Event::Edited));
            }
            Effect::Page(text) => {
                if let Err(error) = self.outside(move || external::page(&text)).await? {
                    self.pending.push_back(Event::Failed(error));
                }
            }
            Effect::Login(agent) => {
                let command = self.login.clone();
                let outcome = self.outside(move || external::login(&command, &agent)).await?;
                self.pending.push_front(Event::LoginEnded(outcome));
            }
            Effect::Quit | Effect::Fail(_) => {}
        }
        Ok(())
    }

    /// Runs a program that uses the terminal. The connections go on meanwhile.
    async fn outside<T: Send + 'static>(
        &mut self,
        run: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<Result<T, String>, ShellError> {
        drop(self.input.take());
        Screen::leave();
        let outcome = tokio::task::spawn_blocking(run).await;
        self.screen.enter()?;
        self.input = Some(EventStream::new());
        Ok(outcome.unwrap_or_else(|error| Err(error.to_string())))
    }

    /// Ends the client because of a signal, or because the terminal is gone. What is delayed is carried out.
    async fn end(&mut self) -> Result<Option<Detached>, ShellError> {
        for effect in self.app.end() {
            if let Effect::Send(call) = effect {
                self.backend.send(call);
            }
        }
        self.stop().await;
        Ok(None)
    }

    async fn stop(&mut self) {
        self.screen.close();
        self.backend.stop().await;
    }
}

/// Signals that end the client.
struct Signals {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self { hangup: signal(SignalKind::hangup())?, terminate: signal(SignalKind::terminate())? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    async fn ended(&mut self) {
        #[cfg(unix)]
        {
            tokio::select! {
                _ = self.hangup.recv() => {}
                _ = self.terminate.recv() => {}
            }
        }
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}

async fn next_input(input: &mut Option<EventStream>) -> Option<std::io::Result<TerminalEvent>> {
    match input {
        Some(input) => input.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

/// The moment of a time in the future; now if it is in the past.
fn until(time: Timestamp) -> Instant {
    let left = time.duration_since(Timestamp::now());
    Instant::now() + Duration::try_from(left).unwrap_or(Duration::ZERO)
}

fn wheel(rows: isize, mouse: MouseEvent) -> Event {
    Event::Wheel { rows, column: mouse.column, row: mouse.row }
}

/// The event of the client for one of the terminal.
fn translate(event: TerminalEvent) -> Option<Event> {
    match event {
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => Some(Event::Key(key.into())),
        TerminalEvent::Paste(text) => Some(Event::Paste(text)),
        TerminalEvent::Resize(width, height) => Some(Event::Resize(width, height)),
        TerminalEvent::FocusGained => Some(Event::Focus(true)),
        TerminalEvent::FocusLost => Some(Event::Focus(false)),
        TerminalEvent::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(wheel(-WHEEL_ROWS, mouse)),
            MouseEventKind::ScrollDown => Some(wheel(WHEEL_ROWS, mouse)),
            MouseEventKind::Down(MouseButton::Left) => Some(Event::Click(mouse.column, mouse.row)),
            MouseEventKind::Down(_)
            | MouseEventKind::Up(_)
            | MouseEventKind::Drag(_)
            | MouseEventKind::Moved
            | MouseEventKind::ScrollLeft
            | MouseEventKind::ScrollRight => None,
        },
        TerminalEvent::Key(_) => None,
    }
}
