//! The place of a call in a trace that began elsewhere, as the W3C writes it.

use std::fmt;
use std::str::FromStr;

/// A `traceparent`: which trace, and which of its spans made the call.
///
/// ```
/// use pegboard_core::trace::TraceParent;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent: TraceParent = text.parse().unwrap();
/// assert_eq!(parent.to_string(), text);
/// assert!("00-zz".parse::<TraceParent>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: u128,
    /// The span that made the call.
    pub span_id: u64,
    /// Whether it is recorded, and other flags.
    pub flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a traceparent reads 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case, none of the ids zero"
)]
pub struct InvalidTraceParent;

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let is_written_right = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        let mut parts = text.split('-');
        let mut part = |n_digits: usize| {
            parts.next().filter(|part| is_written_right && part.len() == n_digits).ok_or(InvalidTraceParent)
        };
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may say more after the flags.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(InvalidTraceParent);
        }
        let parent = Self {
            trace_id: u128::from_str_radix(trace_id, 16).map_err(|_| InvalidTraceParent)?,
            span_id: u64::from_str_radix(span_id, 16).map_err(|_| InvalidTraceParent)?,
            flags: u8::from_str_radix(flags, 16).map_err(|_| InvalidTraceParent)?,
        };
        if parent.trace_id == 0 || parent.span_id == 0 { Err(InvalidTraceParent) } else { Ok(parent) }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}
