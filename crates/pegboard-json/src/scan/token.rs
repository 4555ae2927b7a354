//! JSON tokens: each function skips one and returns its end, or the offset of the error.

/// Returns the first offset at or behind `at` that is not white space.
#[inline]
pub(super) fn space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Returns the end of the string that opens at `quote`.
#[inline]
pub(super) fn string(bytes: &[u8], quote: usize) -> Result<usize, usize> {
    let mut at = quote + 1;
    // Most strings end within a few words, as do the names in `_meta`, and have no escapes; blocks only pay off for
    // longer ones.
    for _ in 0..6 {
        let Some(word) = chunk(bytes, at) else { break };
        let marks = marks_of_word(u64::from_le_bytes(*word));
        if marks != 0 {
            let place = at + marks.trailing_zeros() as usize / 8;
            if bytes[place] == b'"' {
                return Ok(place + 1);
            }
            return long_string(bytes, place);
        }
        at += 8;
    }
    long_string(bytes, at)
}

/// Returns the end of the number or literal at `at`.
pub(super) fn scalar(bytes: &[u8], at: usize) -> Result<usize, usize> {
    let literal: &[u8] = match bytes.get(at) {
        Some(b'-' | b'0'..=b'9') => return number(bytes, at),
        Some(b't') => b"true",
        Some(b'f') => b"false",
        Some(b'n') => b"null",
        _ => return Err(at),
    };
    if bytes[at..].starts_with(literal) { Ok(at + literal.len()) } else { Err(at) }
}

fn number(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    if bytes[at] == b'-' {
        at += 1;
    }
    at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(bytes, at)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(bytes, at)?;
    }
    Ok(at)
}

/// Skips one or more digits.
fn digits(bytes: &[u8], start: usize) -> Result<usize, usize> {
    let mut at = start;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    if at == start { Err(at) } else { Ok(at) }
}

/// Skips the escape that starts at `at`.
#[inline]
fn escape(bytes: &[u8], at: usize) -> Result<usize, usize> {
    let kind = bytes.get(at + 1).copied().unwrap_or_default();
    if SHORT_ESCAPES[usize::from(kind)] {
        return Ok(at + 2);
    }
    match bytes.get(at + 1..at + 6) {
        Some([b'u', digits @ ..]) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
        _ => Err(at),
    }
}

/// Bytes that form an escape by themselves behind a backslash.
///
/// A table, because text mixes them: a branch for each kind is mispredicted too often.
const SHORT_ESCAPES: [bool; 256] = {
    let mut table = [false; 256];
    let kinds = br#""\/bfnrt"#;
    let mut n = 0;
    while n < kinds.len() {
        table[kinds[n] as usize] = true;
        n += 1;
    }
    table
};

/// Returns the end of a string, from an offset inside it.
fn long_string(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    let mut was_plain = true;
    while let Some(block) = chunk(bytes, at) {
        // Text with escapes tends to have many: after a block with some, skip the plain check.
        let mut marks = if was_plain && is_plain(block) { 0 } else { marks_of_block(block) };
        was_plain = marks == 0;
        // Number of bytes of the block that are done; more than the block if an escape crosses its end.
        let mut done = 64;
        while marks != 0 {
            let place = marks.trailing_zeros() as usize;
            match block[place] {
                b'"' => return Ok(at + place + 1),
                b'\\' => done = escape(bytes, at + place)? - at,
                _ => return Err(at + place),
            }
            if done >= 64 {
                break;
            }
            // The characters of an escape have no meaning of their own.
            marks &= u64::MAX << done;
            done = 64;
        }
        at += done;
    }
    short_string(bytes, at)
}

/// Returns the end of a string, byte by byte, for tails shorter than a block.
fn short_string(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = escape(bytes, at)?,
            Some(0x20..) => at += 1,
            _ => return Err(at),
        }
    }
}

/// Returns the `N` bytes at `at`, if there are that many.
#[inline]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// Returns `true` if no byte of the block is special inside a string.
#[inline]
fn is_plain(block: &[u8; 64]) -> bool {
    // Branch-free, so that it compiles to a few vector instructions.
    let mark = |byte: u8| u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
    block.iter().fold(0, |marks, &byte| marks | mark(byte)) == 0
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// Sets the highest bit of each byte that is special inside a string: quote, backslash or control character.
#[inline]
fn marks_of_word(word: u64) -> u64 {
    let low = word & (ONES * 0x7f);
    // With its second bit flipped a quote becomes 0x20; apart from it, only control characters are below
    // 0x21.
    let no_quote = (low ^ (ONES * 0x02)) + ONES * (0x80 - 0x21);
    let no_backslash = (low ^ (ONES * 0x5c)) + ONES * 0x7f;
    !((no_quote & no_backslash) | word) & (ONES * 0x80)
}

/// Sets one bit for each byte of the block that is special inside a string.
#[inline]
fn marks_of_block(block: &[u8; 64]) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    words.iter().rev().fold(0, |marks, word| {
        // The product gathers the lowest bits of the eight bytes into the highest byte.
        let packed =
            (marks_of_word(u64::from_le_bytes(*word)) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        marks << 8 | packed
    })
}
