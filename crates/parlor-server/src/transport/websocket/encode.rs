//! Outgoing messages as WebSocket frames, which a server does not mask.

use bytes::Bytes;
use parlor_engine::Frame;

use crate::send_queue::Encoded;

/// A ping without a payload.
pub(super) const PING: &[u8] = &[0x89, 0];

/// The first byte of a text message that is one frame.
const TEXT: u8 = 0x81;

/// Encodes each line as a message: a header, and the line as it is shared with all other clients that are sent the same.
pub(super) fn encode(frame: &Frame, encoded: &mut Encoded) {
    for line in frame.lines() {
        encoded.push(header(line.len()));
        encoded.push(line);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "each length is in the range of its type")]
fn header(length: usize) -> Bytes {
    match length {
        0..=125 => Bytes::copy_from_slice(&[TEXT, length as u8]),
        126..=0xffff => {
            let [high, low] = (length as u16).to_be_bytes();
            Bytes::copy_from_slice(&[TEXT, 126, high, low])
        }
        _ => {
            let mut header = [TEXT, 127, 0, 0, 0, 0, 0, 0, 0, 0];
            header[2..].copy_from_slice(&(length as u64).to_be_bytes());
            Bytes::copy_from_slice(&header)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::protocol::frame::Frame as WsFrame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

    use super::*;

    #[test]
    fn headers_are_those_of_the_library() {
        for length in [0, 1, 125, 126, 127, 0xffff, 0x1_0000, 300_000] {
            let mut expected = Vec::new();
            let message = WsFrame::message("x".repeat(length), OpCode::Data(Data::Text), true);
            message.format(&mut expected).unwrap();
            assert_eq!(header(length), expected[..expected.len() - length], "{length}");
        }
        let mut expected = Vec::new();
        WsFrame::ping("").format(&mut expected).unwrap();
        assert_eq!(PING, expected);
    }
}
