//! Body of a response: where it ends, and its parts as they arrive.

use std::io;

use bytes::{Buf, Bytes, BytesMut};

use super::head::invalid;
use crate::http::body::SPACE_BEHIND;

/// Maximum size of a body that is delivered as a whole. Memory that is not written is only reserved.
const MAX_WHOLE_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum size of the line with the size of a chunk, including its extensions, and of each trailer.
const MAX_LINE_BYTES: usize = 4 * 1024;

/// Maximum size of all trailers in bytes.
const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Reader of one body.
#[derive(Debug)]
pub(crate) struct BodyReader {
    state: BodyState,
    /// `true` if a body with a length that is not very long is delivered as a whole.
    is_whole: bool,
}

#[derive(Debug)]
enum BodyState {
    /// Bytes that are left of a body with a length.
    Length(u64),
    /// Before the size of a chunk.
    ChunkSize,
    /// Bytes that are left of a chunk.
    ChunkData(u64),
    /// Before the end of a chunk.
    ChunkEnd,
    /// In the trailers, with the number of their bytes so far.
    Trailers(usize),
    /// In a body that ends with its connection.
    UntilClose,
    Finished,
}

impl BodyReader {
    /// Creates the reader of a body with a length, as a whole or in parts as they arrive.
    pub(super) fn with_length(length: u64, is_whole: bool) -> Self {
        let state = if length == 0 { BodyState::Finished } else { BodyState::Length(length) };
        Self { state, is_whole: is_whole && length <= MAX_WHOLE_BYTES }
    }

    pub(super) fn chunked() -> Self {
        Self { state: BodyState::ChunkSize, is_whole: false }
    }

    pub(super) fn until_close() -> Self {
        Self { state: BodyState::UntilClose, is_whole: false }
    }

    /// Returns `true` if the connection ends with the body.
    pub(super) fn is_until_close(&self) -> bool {
        matches!(self.state, BodyState::UntilClose)
    }

    /// Returns `true` once the whole body was read.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.state, BodyState::Finished)
    }

    /// Returns the length of the rest, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.state {
            BodyState::Length(length) => Some(length),
            BodyState::Finished => Some(0),
            _ => None,
        }
    }

    /// Removes the next part of the body from the input; `None` if more input is needed, or at the end.
    pub(super) fn next_part(&mut self, input: &mut BytesMut) -> io::Result<Option<Bytes>> {
        let part = self.take_part(input)?;
        // If the end has arrived, too, the connection is free without another read.
        if part.is_some() && !matches!(self.state, BodyState::ChunkData(_)) {
            self.skip_framing(input)?;
        }
        Ok(part)
    }

    fn take_part(&mut self, input: &mut BytesMut) -> io::Result<Option<Bytes>> {
        self.skip_framing(input)?;
        let available = input.len() as u64;
        let (n_bytes, next) = match self.state {
            BodyState::Length(left) if available >= left => (left, BodyState::Finished),
            BodyState::Length(_) if self.is_whole => return Ok(None),
            BodyState::Length(left) => (available, BodyState::Length(left - available)),
            BodyState::ChunkData(left) if available >= left => (left, BodyState::ChunkEnd),
            BodyState::ChunkData(left) => (available, BodyState::ChunkData(left - available)),
            BodyState::UntilClose => (available, BodyState::UntilClose),
            _ => return Ok(None),
        };
        if n_bytes == 0 {
            return Ok(None);
        }
        self.state = next;
        let n_bytes = usize::try_from(n_bytes).map_err(|_| invalid("the part of a body is too long"))?;
        Ok(Some(input.split_to(n_bytes).freeze()))
    }

    /// Returns the space that the rest of a body needs which is delivered as a whole.
    pub(super) fn missing_bytes(&self, input: &BytesMut) -> usize {
        match self.state {
            BodyState::Length(left) if self.is_whole => {
                usize::try_from(left).map_or(0, |left| left.saturating_sub(input.len()) + SPACE_BEHIND)
            }
            _ => 0,
        }
    }

    /// Ends a body that its connection delimits; an error for any other.
    pub(super) fn end_of_input(&mut self) -> io::Result<()> {
        match self.state {
            BodyState::UntilClose | BodyState::Finished => {
                self.state = BodyState::Finished;
                Ok(())
            }
            _ => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed before its end"))
            }
        }
    }

    /// Skips sizes, ends of chunks and trailers, as far as they have arrived.
    fn skip_framing(&mut self, input: &mut BytesMut) -> io::Result<()> {
        loop {
            self.state = match self.state {
                BodyState::ChunkSize => match take_line(input)? {
                    Some(line) => match chunk_size(&line)? {
                        0 => BodyState::Trailers(0),
                        size => BodyState::ChunkData(size),
                    },
                    None => return Ok(()),
                },
                BodyState::ChunkEnd => match take_line(input)? {
                    Some(line) if line.is_empty() => BodyState::ChunkSize,
                    Some(_) => return Err(invalid("a chunk of the response is longer than its size")),
                    None => return Ok(()),
                },
                BodyState::Trailers(n_bytes) => match take_line(input)? {
                    Some(line) if line.is_empty() => BodyState::Finished,
                    Some(line) if n_bytes + line.len() <= MAX_TRAILER_BYTES => {
                        BodyState::Trailers(n_bytes + line.len() + 1)
                    }
                    Some(_) => return Err(invalid("the response has too many trailers")),
                    None => return Ok(()),
                },
                BodyState::Length(_)
                | BodyState::ChunkData(_)
                | BodyState::UntilClose
                | BodyState::Finished => {
                    return Ok(());
                }
            };
        }
    }
}

/// Removes a line from the input, without its end; `None` if it is not complete.
fn take_line(input: &mut BytesMut) -> io::Result<Option<BytesMut>> {
    let Some(end) = memchr::memchr(b'\n', &input[..input.len().min(MAX_LINE_BYTES)]) else {
        return if input.len() >= MAX_LINE_BYTES {
            Err(invalid("the response has an overlong line between its chunks"))
        } else {
            Ok(None)
        };
    };
    let mut line = input.split_to(end);
    input.advance(1);
    if line.last() != Some(&b'\r') {
        return Err(invalid("a line between chunks of the response has no CR"));
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

/// Parses the size of a chunk; extensions are ignored.
fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    // Spaces may stand before an extension.
    let is_delimited = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
    let size =
        std::str::from_utf8(digits).ok().filter(|digits| is_delimited && (1..=15).contains(&digits.len()));
    size.and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| invalid("the response has an invalid chunk size"))
}
