//! W3C trace context.

use std::fmt;
use std::str::FromStr;

/// A `traceparent`: the trace and the parent span of a call.
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
    /// Trace id.
    pub trace_id: u128,
    /// Parent span id.
    pub span_id: u64,
    /// Flags, such as `sampled`.
    pub flags: u8,
}

/// A text that is not a valid `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a traceparent such as 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case, with non-zero ids"
)]
pub struct InvalidTraceParent;

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let has_valid_characters = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        let mut parts = text.split('-');
        let mut part = |n_digits: usize| {
            parts
                .next()
                .filter(|part| has_valid_characters && part.len() == n_digits)
                .ok_or(InvalidTraceParent)
        };
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may append fields after the flags.
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
