//! The end of what a process wrote to its standard error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tracing::debug;

/// How much is kept.
const KEPT: usize = 64 << 10;

/// How long a line may be that is traced as one.
const LINE: usize = 4 << 10;

/// The last bytes of a stream. A clone is the same tail.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Reads to the end of the stream.
    pub(super) async fn read(self, mut stream: impl AsyncRead + Unpin, pid: u32) {
        let mut buffer = vec![0; 8 << 10];
        let mut line = Vec::new();
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            self.push(&buffer[..length]);
            for piece in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if piece.ends_with(b"\n") || line.len() >= LINE {
                    trace(pid, &mut line);
                }
            }
        }
        trace(pid, &mut line);
    }

    /// What is kept, as text.
    pub(super) fn text(&self) -> String {
        let bytes = self.lock();
        let (front, back) = bytes.as_slices();
        let bytes = [front, back].concat();
        // Where it was cut, the rest of a character is no news.
        let cut =
            if bytes.len() == KEPT { bytes.iter().take(3).take_while(|b| is_inside(**b)).count() } else { 0 };
        String::from_utf8_lossy(&bytes[cut..]).into_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        kept.extend(bytes);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a byte is one of a character's in UTF-8 and not its first.
fn is_inside(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn trace(pid: u32, line: &mut Vec<u8>) {
    if !line.is_empty() {
        // As a debug value, so that control characters are escaped.
        debug!(pid, stderr = ?String::from_utf8_lossy(line).trim_end());
    }
    line.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_no_character_is_cut() {
        let tail = Tail::default();
        tail.push(b"first ");
        assert_eq!(tail.text(), "first ");
        tail.push("€".repeat(KEPT / 3 + 10).as_bytes());
        assert_eq!(tail.text(), "€".repeat(KEPT / 3));
        tail.push(&[b'a', 0xff, b'b']);
        assert!(tail.text().ends_with("€a\u{fffd}b"));
    }
}
