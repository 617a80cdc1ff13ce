//! The last bytes of a process's standard error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt};
use tracing::info;

use crate::lock;

/// How many bytes are kept.
const CAPACITY: usize = 64 << 10;

/// The length at which a line is logged in pieces.
const MAX_LOGGED_LINE: usize = 4 << 10;

/// The last bytes of a stream. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Reads the stream to its end and logs its lines.
    pub(crate) async fn read(self, mut stream: impl AsyncRead + Unpin, pid: u32) {
        let mut buffer = vec![0; 8 << 10];
        let mut line = Vec::new();
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            self.push(&buffer[..length]);
            for piece in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if piece.ends_with(b"\n") || line.len() >= MAX_LOGGED_LINE {
                    log_line(pid, &mut line);
                }
            }
        }
        log_line(pid, &mut line);
    }

    /// The bytes as text.
    pub(crate) fn text(&self) -> String {
        let bytes = lock(&self.0);
        let (front, back) = bytes.as_slices();
        let bytes = [front, back].concat();
        // The first character may have been cut.
        let cut = if bytes.len() == CAPACITY {
            bytes.iter().take(3).take_while(|b| is_inside(**b)).count()
        } else {
            0
        };
        String::from_utf8_lossy(&bytes[cut..]).into_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = lock(&self.0);
        kept.extend(bytes);
        let over = kept.len().saturating_sub(CAPACITY);
        kept.drain(..over);
    }
}

/// Whether a byte is a continuation byte of UTF-8.
fn is_inside(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn log_line(pid: u32, line: &mut Vec<u8>) {
    if !line.is_empty() {
        // As a debug value, so that control characters are escaped.
        info!(pid, stderr = ?String::from_utf8_lossy(line).trim_end());
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
        tail.push("€".repeat(CAPACITY / 3 + 10).as_bytes());
        assert_eq!(tail.text(), "€".repeat(CAPACITY / 3));
        tail.push(&[b'a', 0xff, b'b']);
        assert!(tail.text().ends_with("€a\u{fffd}b"));
    }
}
