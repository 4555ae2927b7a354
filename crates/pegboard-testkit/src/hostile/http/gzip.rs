//! A gzip bomb: a small response that is huge when decompressed.

use std::io;

use super::request::RawConnection;

/// Decompressed size.
const DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;
/// Length of one back reference.
const BACK_REFERENCE_BYTES: usize = 258;

/// Sends 1 GiB of spaces, which is a valid beginning of JSON.
pub(super) fn send_bomb(connection: &mut RawConnection) -> io::Result<()> {
    connection.send(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    )?;
    connection.chunk([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])?;
    let mut bits = BitWriter::default();
    // The final block, with fixed Huffman codes: a space, and then back references to it.
    bits.push(&[1, 1, 0]);
    bits.push_code(0b0011_0000 + u16::from(b' '), 8);
    let mut n_copies = DECOMPRESSED_BYTES / BACK_REFERENCE_BYTES;
    while n_copies > 0 {
        // A multiple of 8, so that the bit offset within a byte stays the same.
        let n_now = n_copies.min(8 * 1024);
        for _ in 0..n_now {
            // 258 bytes, from one byte ago.
            bits.push_code(0b1100_0101, 8);
            bits.push_code(0, 5);
        }
        connection.chunk(bits.take_bytes())?;
        n_copies -= n_now;
    }
    connection.chunk("")
}

/// A bit writer, least significant bit first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    last: u8,
    n_last: u32,
}

impl BitWriter {
    fn push(&mut self, bits: &[u8]) {
        for bit in bits {
            self.last |= bit << self.n_last;
            self.n_last += 1;
            if self.n_last == 8 {
                self.bytes.push(std::mem::take(&mut self.last));
                self.n_last = 0;
            }
        }
    }

    /// Writes a Huffman code, most significant bit first.
    fn push_code(&mut self, code: u16, n_bits: u32) {
        for at in (0..n_bits).rev() {
            self.push(&[u8::from(code >> at & 1 == 1)]);
        }
    }

    /// Returns the complete bytes.
    fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}
