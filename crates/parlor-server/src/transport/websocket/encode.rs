//! Outgoing messages as WebSocket frames, which a server does not mask.

use parlor_engine::Frame;

use crate::send_queue::Encoded;

/// A ping without a payload.
pub(super) const PING: &[u8] = &[0x89, 0];

/// The first byte of a text message that is one frame.
const TEXT: u8 = 0x81;

/// The length from which a line is shared with all other clients that are sent the same, instead of copied.
const SHARED_FROM: usize = 4 << 10;

/// Encodes each line as a message: a header and the line. Short lines are copied into one part, so that the socket is offered
/// many of them at once.
pub(super) fn encode(frame: &Frame, encoded: &mut Encoded) {
    let bytes = frame.bytes();
    // Most headers have 4 bytes, and most lines more than 64.
    let mut copied = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', bytes) {
        let line = start..end;
        start = end + 1;
        put_header(line.len(), &mut copied);
        if line.len() < SHARED_FROM {
            copied.extend_from_slice(&bytes[line]);
        } else {
            encoded.push(std::mem::take(&mut copied).into());
            encoded.push(bytes.slice(line));
        }
    }
    encoded.push(copied.into());
}

#[expect(clippy::cast_possible_truncation, reason = "each length is in the range of its type")]
fn put_header(length: usize, buffer: &mut Vec<u8>) {
    match length {
        0..=125 => buffer.extend_from_slice(&[TEXT, length as u8]),
        126..=0xffff => {
            buffer.extend_from_slice(&[TEXT, 126]);
            buffer.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            buffer.extend_from_slice(&[TEXT, 127]);
            buffer.extend_from_slice(&(length as u64).to_be_bytes());
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
            let mut header = Vec::new();
            put_header(length, &mut header);
            assert_eq!(header, expected[..expected.len() - length], "{length}");
        }
        let mut expected = Vec::new();
        WsFrame::ping("").format(&mut expected).unwrap();
        assert_eq!(PING, expected);
    }

    #[test]
    fn short_lines_are_one_part_and_a_long_line_is_shared() {
        let long = "x".repeat(SHARED_FROM);
        let frame = Frame::updates(format!("a\nbc\n{long}\nd\n"));
        let mut encoded = Encoded::default();
        encode(&frame, &mut encoded);
        let parts: Vec<_> = encoded.parts().collect();
        let mut before = b"\x81\x01a\x81\x02bc".to_vec();
        put_header(long.len(), &mut before);
        assert_eq!(parts, [&before[..], long.as_bytes(), b"\x81\x01d"]);
        assert_eq!(parts[1].as_ptr(), frame.bytes()[5..].as_ptr());
    }
}
