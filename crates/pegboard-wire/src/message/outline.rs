//! Outlines of messages that are not valid JSON, or too large to be read.

use super::id::Id;

/// The envelope of a broken message, as far as it can be recognized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageOutline {
    id: Option<Id>,
    has_version: bool,
    has_answer: bool,
    is_call: bool,
}

/// The request that a broken message answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnsweredRequest {
    /// The request with this id.
    Known(Id),
    /// It names none.
    Unknown,
}

impl MessageOutline {
    /// Reads the members of an object, or of the first one in a batch, without regard to the syntax of their
    /// values. `None` if the text does not begin like an object: servers print banners and logs.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii_start();
        let text = text.strip_prefix(b"[").map_or(text, <[u8]>::trim_ascii_start);
        let text = text.strip_prefix(b"{")?;
        let mut outline = Self::default();
        let (mut at, mut depth) = (0, 1);
        while let Some(&byte) = text.get(at) {
            at += 1;
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 1 => break,
                b'}' | b']' => depth -= 1,
                // Python prints dictionaries with single quotes.
                b'"' | b'\'' => {
                    let Some(end) = string_end(text, at, byte) else { break };
                    let after = text[end + 1..].trim_ascii_start();
                    if depth == 1
                        && let Some(value) = after.strip_prefix(b":")
                    {
                        outline.record(&text[at..end], value.trim_ascii_start());
                    }
                    at = end + 1;
                }
                _ => {}
            }
        }
        Some(outline)
    }

    fn record(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"jsonrpc" => self.has_version = true,
            b"id" => self.id = self.id.take().or_else(|| id_at_start(value)),
            b"result" | b"error" => self.has_answer = true,
            b"method" | b"params" => self.is_call = true,
            _ => {}
        }
    }

    /// Returns the request that the message answers, if it must be a response.
    pub(crate) fn answered_request(self) -> Option<AnsweredRequest> {
        if self.is_call {
            return None;
        }
        match self.id {
            Some(id) if self.has_version || self.has_answer => Some(AnsweredRequest::Known(id)),
            None if self.has_version => Some(AnsweredRequest::Unknown),
            Some(_) | None => None,
        }
    }

    /// Returns the request that an oversized message answers. Nothing but a message is that large, and its id
    /// may come last.
    pub(crate) fn answered_request_if_large(self) -> Option<AnsweredRequest> {
        (!self.is_call).then(|| self.id.map_or(AnsweredRequest::Unknown, AnsweredRequest::Known))
    }
}

/// Returns the position of the quote that ends a string.
fn string_end(text: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        at += memchr::memchr2(quote, b'\\', text.get(at..)?)?;
        if text[at] == quote {
            return Some(at);
        }
        at += 2;
    }
}

/// Parses the id at the start of a text.
fn id_at_start(text: &[u8]) -> Option<Id> {
    let end = match text.first()? {
        b'"' => string_end(text, 1, b'"')? + 1,
        _ => text.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9')).unwrap_or(text.len()),
    };
    Id::parse(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_response_names_its_request_and_other_lines_do_not() {
        let known = |id| Some(AnsweredRequest::Known(Id::Number(id)));
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#, known(7)),
            (r#"{"result": {"id": 3, "method": "no"}, "id": 7, "jsonrpc": undefined"#, known(7)),
            (r#"{"id":7,"result":Infinity}"#, known(7)),
            (r"{'jsonrpc': '2.0', 'id': 7, 'result': None}", known(7)),
            (r#" [ {"jsonrpc":"2.0","id":7,"result":NaN}]"#, known(7)),
            (
                r#"{"jsonrpc":"2.0","id":"a\"b","error":NaN}"#,
                Some(AnsweredRequest::Known(Id::Text("a\"b".into()))),
            ),
            (r#"{"jsonrpc":"2.0","id":NaN,"result":{}}"#, Some(AnsweredRequest::Unknown)),
            (r#"{"jsonrpc"#, None),
            (r#"{"jsonrpc":"2.0"#, Some(AnsweredRequest::Unknown)),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":NaN}}"#, None),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":NaN}"#, None),
            // Banners and logs.
            ("", None),
            ("Listening on {}", None),
            ("{", None),
            ("} done", None),
            (r#"{"level":"info","id":7,"message":NaN}"#, None),
            (r#"DEBUG {"jsonrpc":"2.0","id":7,"result":{}}"#, None),
            (r#""jsonrpc": "2.0","#, None),
        ] {
            let found = MessageOutline::of(line.as_bytes()).and_then(MessageOutline::answered_request);
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn the_head_of_a_large_response_is_enough() {
        let known = |id| Some(AnsweredRequest::Known(Id::Number(id)));
        for (head, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"text":"xxxxx"#, known(7)),
            (r#"{"result":{"text":"xxxxx"#, Some(AnsweredRequest::Unknown)),
            (r#"{"method":"notifications/message","params":{"data":"xxx"#, None),
            ("xxxxxxxx", None),
        ] {
            let outline = MessageOutline::of(head.as_bytes());
            let found = outline.and_then(MessageOutline::answered_request_if_large);
            assert_eq!(found, expected, "{head}");
        }
    }
}
