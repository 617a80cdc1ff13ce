//! The part of the WebSocket protocol that a measuring client needs: one message per frame, without compression.
//!
//! A library would copy and check each message, which would be measured too.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The opcodes that a server sends.
pub(super) const TEXT: u8 = 1;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// The flag of a final frame.
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// The length values that announce a length of two or eight bytes.
const LENGTH_16: u8 = 0x7e;
const LENGTH_64: u8 = 0x7f;

/// The most bytes of the head of an HTTP response.
const MAX_RESPONSE: usize = 8 << 10;

/// The header of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The opcode; 0 for a continuation frame, which no server sends here.
    pub(super) opcode: u8,
    /// The length of the header in bytes.
    pub(super) header: usize,
    /// The length of the payload in bytes.
    pub(super) length: usize,
}

impl Frame {
    /// Parses the header of a complete frame; returns `None` if the frame is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let (header, length) = match *bytes.get(1)? & !MASKED {
            LENGTH_16 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
            LENGTH_64 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
            short => (2, u64::from(short)),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let opcode = if first & FINAL == 0 { 0 } else { first & 0x0f };
        (bytes.len() - header >= length).then_some(Self { opcode, header, length })
    }
}

/// Returns the frame of a text message.
pub(super) fn text(message: &str) -> Vec<u8> {
    frame(TEXT, message.as_bytes())
}

/// Returns the frame that answers a ping.
pub(super) fn pong(payload: &[u8]) -> Vec<u8> {
    frame(PONG, payload)
}

/// Returns a frame, masked with a key of zeros, which leaves the payload unchanged.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    const KEY: [u8; 4] = [0; 4];
    let mut frame = vec![FINAL | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..LENGTH_16), _) => frame.push(MASKED | length),
        (_, Ok(length)) => {
            frame.push(MASKED | LENGTH_16);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(MASKED | LENGTH_64);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend(KEY);
    frame.extend(payload);
    frame
}

/// Sends the upgrade request and reads the response.
pub(super) fn upgrade(stream: &mut TcpStream, address: SocketAddr, token: &str) -> io::Result<()> {
    write!(
        stream,
        "GET /acp HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cGFybG9yIGJlbmNobWFyaw==\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    )?;
    let mut response = Vec::new();
    let mut byte = [0];
    while !response.ends_with(b"\r\n\r\n") && response.len() < MAX_RESPONSE {
        stream.read_exact(&mut byte)?;
        response.extend(byte);
    }
    if response.starts_with(b"HTTP/1.1 101 ") {
        return Ok(());
    }
    let response = String::from_utf8_lossy(&response);
    Err(io::Error::other(response.lines().next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_when_all_of_it_came() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let sent = frame(TEXT, &vec![b'x'; length]);
            // Frames of a server are not masked.
            let mut bytes = sent[..sent.len() - length - 4].to_vec();
            bytes[1] &= !MASKED;
            let header = bytes.len();
            bytes.extend(vec![b'x'; length]);
            assert_eq!(Frame::parse(&bytes), Some(Frame { opcode: TEXT, header, length }));
            for short in [0, 1, header - 1, bytes.len() - 1] {
                assert_eq!(Frame::parse(&bytes[..short]), None, "{short} of {length}");
            }
        }
        assert_eq!(Frame::parse(&[TEXT, 0]), Some(Frame { opcode: 0, header: 2, length: 0 }));
    }
}
