//! Steps that send many chunks, or a big one.

use std::time::{Duration, Instant};

use super::commands::{STAMPED, STREAM_NUMBER, Stamp, Stream, StreamRate};
use super::encode::{Block, Role};
use super::server::update_line;
use super::turn::{End, Turn};

/// The text that is repeated in chunks.
const FILLER: &str = "abcdefghijklmnopqrstuvwxyz ";
/// The most stored bytes of a stream's text.
const MAX_STORED: usize = 64 * 1024;

impl Turn {
    /// Sends chunks that begin with their number, counted from 0, in eight digits and a space.
    pub(super) fn stream(&mut self, stream: &Stream) -> Result<(), End> {
        let id = self.agent.new_id();
        let text = format!("{:08} {}", 0, filler(stream.size - STREAM_NUMBER));
        let chunk = self.encoder.chunk(Role::Agent, &id, &Block::Text(text.clone()).to_json());
        let mut line = update_line(&self.session.id, &chunk);
        // Only the number differs between lines, so that this agent can send millions per second.
        let offset = line.find(&text).expect("JSON does not escape letters");
        let start = Instant::now();
        let mut stored = String::new();
        let done = (0..stream.count).try_for_each(|number| {
            match stream.rate {
                StreamRate::Full | StreamRate::Each => self.check()?,
                StreamRate::PerSecond(rate) => self.wait(start + due(number, rate))?,
            }
            let digits = format!("{number:08}");
            line.replace_range(offset..offset + digits.len(), &digits);
            match stream.rate {
                StreamRate::Each => self.agent.out.line_at_once(&line),
                StreamRate::Full | StreamRate::PerSecond(_) => self.agent.out.line(&line),
            }
            if stored.len() < MAX_STORED {
                stored.push_str(&line[offset..offset + text.len()]);
            }
            Ok(())
        });
        if !stored.is_empty() {
            self.session.lock().saved.append(Role::Agent, &id, Block::Text(stored));
        }
        done
    }

    /// Sends chunks that begin like those of a stream, with the time at which each is written behind its number.
    pub(super) fn stamp(&mut self, stamp: &Stamp) -> Result<(), End> {
        let id = self.agent.new_id();
        let text = format!("{:08} {:020}{}", 0, 0, filler(stamp.size - STAMPED));
        let chunk = self.encoder.chunk(Role::Agent, &id, &Block::Text(text.clone()).to_json());
        let mut line = update_line(&self.session.id, &chunk);
        // Hundreds of sessions may do this at the same time, so a chunk costs only its digits and one write.
        let offset = line.find(&text).expect("JSON does not escape letters");
        let start = Instant::now() + Duration::from_nanos(stamp.at.saturating_sub(monotonic()));
        (0..stamp.count).try_for_each(|number| {
            self.wait(start + due(number, stamp.rate))?;
            let digits = format!("{number:08} {:020}", monotonic());
            line.replace_range(offset..offset + digits.len(), &digits);
            self.agent.out.line_at_once(&line);
            Ok(())
        })
    }

    /// Sends one chunk of this many bytes.
    pub(super) fn big(&self, size: usize) {
        let id = self.agent.new_id();
        let block = Block::Text(filler(size));
        self.update(&self.encoder.chunk(Role::Agent, &id, &block.to_json()));
        let stored = Block::Text(filler(size.min(MAX_STORED)));
        self.session.lock().saved.append(Role::Agent, &id, stored);
    }
}

/// Returns the time of a chunk after the start, so that one delay does not delay the rest.
fn due(number: u32, rate: u32) -> Duration {
    Duration::from_secs_f64(f64::from(number) / f64::from(rate.max(1)))
}

/// Returns the nanoseconds of the monotonic clock, which all processes of a machine share.
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
