//! Many chunks, and big ones.

use std::time::{Duration, Instant};

use super::commands::{Pace, STAMPED, STREAM_NUMBER, Stamp, Stream};
use super::say::{Block, Role};
use super::server::update_line;
use super::turn::{End, Turn};

/// What fills the chunks.
const FILLER: &str = "abcdefghijklmnopqrstuvwxyz ";
/// How much of a stream is remembered.
const REMEMBERED: usize = 64 * 1024;

impl Turn {
    /// Says chunks that begin with their number, counted from 0, in eight digits and a space.
    pub(super) fn stream(&mut self, stream: &Stream) -> Result<(), End> {
        let id = self.agent.fresh_id();
        let text = format!("{:08} {}", 0, filler(stream.size - STREAM_NUMBER));
        let chunk = self.voice.chunk(Role::Agent, &id, &Block::Text(text.clone()).to_json());
        let mut line = update_line(&self.session.id, &chunk);
        // Only the number differs from line to line, and a rate of millions should not be limited by this agent.
        let place = line.find(&text).expect("letters stand in JSON as they are");
        let start = Instant::now();
        let mut remembered = String::new();
        let done = (0..stream.count).try_for_each(|number| {
            match stream.pace {
                Pace::Full | Pace::Each => self.check()?,
                Pace::PerSecond(rate) => self.wait(start + due(number, rate))?,
            }
            let digits = format!("{number:08}");
            line.replace_range(place..place + digits.len(), &digits);
            match stream.pace {
                Pace::Each => self.agent.out.line_at_once(&line),
                Pace::Full | Pace::PerSecond(_) => self.agent.out.line(&line),
            }
            if remembered.len() < REMEMBERED {
                remembered.push_str(&line[place..place + text.len()]);
            }
            Ok(())
        });
        if !remembered.is_empty() {
            self.session.lock().saved.keep(Role::Agent, &id, Block::Text(remembered));
        }
        done
    }

    /// Sends chunks that begin like those of a stream, with the time at which each is written behind its number.
    pub(super) fn stamp(&mut self, stamp: &Stamp) -> Result<(), End> {
        let id = self.agent.fresh_id();
        let text = format!("{:08} {:020}{}", 0, 0, filler(stamp.size - STAMPED));
        let chunk = self.voice.chunk(Role::Agent, &id, &Block::Text(text.clone()).to_json());
        let mut line = update_line(&self.session.id, &chunk);
        // Hundreds of sessions may do this at a time, so a chunk costs no more than its digits and one write.
        let place = line.find(&text).expect("letters stand in JSON as they are");
        let start = Instant::now() + Duration::from_nanos(stamp.at.saturating_sub(monotonic()));
        (0..stamp.count).try_for_each(|number| {
            self.wait(start + due(number, stamp.rate))?;
            let digits = format!("{number:08} {:020}", monotonic());
            line.replace_range(place..place + digits.len(), &digits);
            self.agent.out.line_at_once(&line);
            Ok(())
        })
    }

    /// Says one chunk of this many bytes.
    pub(super) fn big(&self, size: usize) {
        let id = self.agent.fresh_id();
        let block = Block::Text(filler(size));
        self.update(&self.voice.chunk(Role::Agent, &id, &block.to_json()));
        let remembered = Block::Text(filler(size.min(REMEMBERED)));
        self.session.lock().saved.keep(Role::Agent, &id, remembered);
    }
}

/// When a chunk of a stream with a rate is due. The times are counted from the beginning, so that being late once
/// does not slow down the rest.
fn due(number: u32, rate: u32) -> Duration {
    Duration::from_secs_f64(f64::from(number) / f64::from(rate.max(1)))
}

/// Nanoseconds on the clock that all processes of a machine share.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn filler(size: usize) -> String {
    let mut text = FILLER.repeat(size / FILLER.len() + 1);
    text.truncate(size);
    text
}
