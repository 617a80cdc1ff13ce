//! Owns the terminal and the connections: sends events to the [`App`] and runs its effects.

mod backend;
mod escape;
mod external;
mod files;
mod prompt;
mod terminal;

use std::time::{Duration, Instant};

use crossterm::event::{Event as TerminalEvent, EventStream, KeyEventKind, MouseButton, MouseEventKind};
use futures_util::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;

use self::backend::Backend;
pub use self::backend::Target;
use self::escape::EscapeFilter;
use self::terminal::Screen;
use crate::clean::Clean;
use crate::{App, Effect, Event, Options};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(33);

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
    /// The agent that was to be attached cannot be started.
    #[error("{0}")]
    Start(String),
}

/// Runs the client until it is detached. It must run on a single-threaded runtime: transcripts are read between updates and
/// not copied.
pub async fn run(options: Options, target: Target) -> Result<(), ShellError> {
    let (sender, mut events) = mpsc::channel(MAX_EVENTS);
    let mut app = App::new(options, Timestamp::now());
    let mut backend = Backend::start(target, sender.clone()).await.map_err(ShellError::Start)?;
    let mut screen = Screen::open()?;
    let mut input = Some(EventStream::new());
    let mut escape = EscapeFilter::default();
    let (width, height) = screen.size()?;
    let mut pending = vec![Event::Resize(width, height)];
    let mut next_frame = Instant::now();
    let mut is_dirty = true;
    let mut signals = Signals::new()?;
    loop {
        for event in pending.drain(..) {
            for effect in app.update(event, Timestamp::now()) {
                match effect {
                    Effect::Quit => {
                        screen.close();
                        backend.stop().await;
                        return Ok(());
                    }
                    Effect::Send(call) => backend.send(call),
                    Effect::Reconnect => backend.reconnect(),
                    Effect::Copy(text) => Screen::copy(&text, &sender),
                    Effect::Notify(text) => Screen::notify(&Clean::line(&text)),
                    Effect::WindowTitle(title) => Screen::set_title(&Clean::line(&title)),
                    Effect::OpenLink(url) => external::open_link(&url, &sender),
                    Effect::ListFiles(cwd) => files::list(cwd, sender.clone()),
                    Effect::Redraw => screen.clear()?,
                    Effect::Suspend => {
                        drop(input.take());
                        screen.suspend()?;
                        input = Some(EventStream::new());
                        is_dirty = true;
                    }
                    Effect::Edit(text) => {
                        drop(input.take());
                        let edited = screen.outside(|| external::edit(&text))?;
                        input = Some(EventStream::new());
                        let event = edited.map_or_else(Event::Failed, Event::Edited);
                        let _ = sender.try_send(event);
                    }
                    Effect::Page(text) => {
                        drop(input.take());
                        if let Err(error) = screen.outside(|| external::page(&text))? {
                            let _ = sender.try_send(Event::Failed(error));
                        }
                        input = Some(EventStream::new());
                    }
                }
            }
        }
        is_dirty |= app.take_dirty();
        if is_dirty && Instant::now() >= next_frame {
            screen.draw(|frame| app.render(frame))?;
            next_frame = Instant::now() + FRAME;
            is_dirty = false;
        }
        let tick = app.next_tick().map(until);
        let frame = is_dirty.then_some(next_frame);
        tokio::select! {
            biased;
            () = signals.ended() => pending.push(quit_event(&mut backend, &mut screen).await),
            event = next_input(&mut input) => match event {
                Some(Ok(event)) => pending.extend(escape.filter(event, Instant::now()).into_iter().filter_map(translate)),
                // The terminal is gone.
                Some(Err(_)) | None => {
                    screen.close();
                    backend.stop().await;
                    return Ok(());
                }
            },
            () = sleep_until(escape.due()) => pending.extend(escape.flush().into_iter().filter_map(translate)),
            () = sleep_until(frame) => {}
            Some(event) = events.recv() => {
                pending.push(event);
                // Many changes of a transcript are one.
                while pending.len() < MAX_BATCH && let Ok(event) = events.try_recv() {
                    if !matches!((&event, pending.last()), (Event::Changed, Some(Event::Changed))) {
                        pending.push(event);
                    }
                }
            }
            () = sleep_until(tick) => pending.push(Event::Tick),
        }
        if signals.has_ended {
            return Ok(());
        }
    }
}

async fn quit_event(backend: &mut Backend, screen: &mut Screen) -> Event {
    screen.close();
    backend.stop().await;
    Event::Tick
}

/// Signals that end the client.
struct Signals {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    has_ended: bool,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                hangup: signal(SignalKind::hangup())?,
                terminate: signal(SignalKind::terminate())?,
                has_ended: false,
            })
        }
        #[cfg(not(unix))]
        Ok(Self { has_ended: false })
    }

    async fn ended(&mut self) {
        #[cfg(unix)]
        {
            tokio::select! {
                _ = self.hangup.recv() => {}
                _ = self.terminate.recv() => {}
            }
            self.has_ended = true;
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

/// The event of the client for one of the terminal.
fn translate(event: TerminalEvent) -> Option<Event> {
    match event {
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => Some(Event::Key(key.into())),
        TerminalEvent::Paste(text) => Some(Event::Paste(text)),
        TerminalEvent::Resize(width, height) => Some(Event::Resize(width, height)),
        TerminalEvent::FocusGained => Some(Event::Focus(true)),
        TerminalEvent::FocusLost => Some(Event::Focus(false)),
        TerminalEvent::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(Event::Wheel(-WHEEL_ROWS)),
            MouseEventKind::ScrollDown => Some(Event::Wheel(WHEEL_ROWS)),
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
