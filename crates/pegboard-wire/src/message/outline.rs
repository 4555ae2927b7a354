//! Outlines of messages that are not valid JSON, or too large to be read.

use super::id::Id;

/// Maximum size of a key or an id; a longer one is neither of a member nor of a request.
const MAX_TOKEN_BYTES: usize = 256;

/// Maximum number of messages in a batch.
const MAX_MESSAGES: usize = 1_024;

/// The request that a broken message answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnsweredRequest {
    /// The request with this id.
    Known(Id),
    /// It names none.
    Unknown,
}

/// Returns the requests that a broken message, or the messages of a broken batch, must be responses to. Empty if the
/// text does not begin like a message: servers print banners and logs.
pub(crate) fn answered_requests(text: &[u8]) -> Vec<AnsweredRequest> {
    let mut scanner = OutlineScanner::default();
    scanner.push(text);
    scanner.finish().filter_map(MessageOutline::answered_request).collect()
}

/// A message that exceeds the size limit, while it arrives. It may name its request first or last.
#[derive(Debug, Default)]
pub(crate) struct OversizedMessage {
    scanner: OutlineScanner,
    is_known: bool,
}

impl OversizedMessage {
    /// Reads the next part of the message. Returns the request that it answers, as soon as that is certain.
    pub(crate) fn push(&mut self, part: &[u8]) -> Option<AnsweredRequest> {
        if self.is_known {
            return None;
        }
        self.scanner.push(part);
        let id = self.scanner.answered_id()?;
        self.is_known = true;
        Some(AnsweredRequest::Known(id))
    }

    /// Returns `true` if the message is a notification, as far as it has been read.
    pub(crate) fn is_notification(&self) -> bool {
        let message = self.scanner.finished.first().unwrap_or(&self.scanner.current);
        !self.scanner.is_batch && message.is_call && message.id.is_none()
    }

    /// Returns the requests that the message answers, unless that was certain before its end.
    pub(crate) fn finish(self) -> Vec<AnsweredRequest> {
        if self.is_known {
            return Vec::new();
        }
        self.scanner.finish().filter_map(MessageOutline::answered_request_if_large).collect()
    }
}

/// The envelope of a broken message, as far as it can be recognized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MessageOutline {
    id: Option<Id>,
    has_version: bool,
    has_answer: bool,
    is_call: bool,
}

impl MessageOutline {
    fn record_key(&mut self, key: &[u8]) {
        match key {
            b"jsonrpc" => self.has_version = true,
            b"result" | b"error" => self.has_answer = true,
            b"method" | b"params" => self.is_call = true,
            _ => {}
        }
    }

    /// Returns the request that the message answers, if it must be a response.
    fn answered_request(self) -> Option<AnsweredRequest> {
        if self.is_call {
            return None;
        }
        match self.id {
            Some(id) if self.has_version || self.has_answer => Some(AnsweredRequest::Known(id)),
            None if self.has_version => Some(AnsweredRequest::Unknown),
            Some(_) | None => None,
        }
    }

    /// Returns the request that an oversized message answers. Nothing but a message is that large.
    fn answered_request_if_large(self) -> Option<AnsweredRequest> {
        (!self.is_call).then(|| self.id.map_or(AnsweredRequest::Unknown, AnsweredRequest::Known))
    }
}

/// Reads the members of messages from a text in parts, without regard to the syntax of their values.
#[derive(Debug, Default)]
struct OutlineScanner {
    finished: Vec<MessageOutline>,
    current: MessageOutline,
    /// Depth in the current message; 0 outside of it.
    depth: usize,
    is_batch: bool,
    state: ScanState,
    /// Beginning of the current string or number at the depth of the envelope.
    token: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// Before a message.
    #[default]
    Start,
    /// Between two strings.
    Structure,
    /// In a string. Python prints dictionaries with single quotes.
    Text { quote: u8, is_escaped: bool, role: TextRole },
    /// Behind a string, which is a key if a colon follows.
    AfterText,
    /// Behind the key of the id.
    BeforeId,
    /// In an id that is a number.
    IdNumber,
    /// Behind the last message, or in a text that is none.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextRole {
    KeyOrValue,
    Id,
}

impl OutlineScanner {
    fn push(&mut self, mut text: &[u8]) {
        while let Some((&byte, rest)) = text.split_first() {
            if let ScanState::Text { quote, is_escaped, role } = self.state {
                text = self.scan_text(text, quote, is_escaped, role);
                continue;
            }
            if self.state == ScanState::End {
                return;
            }
            if self.scan_byte(byte) {
                text = rest;
            }
        }
    }

    /// Scans a byte outside of strings; returns `false` if it must be scanned again in the new state.
    fn scan_byte(&mut self, byte: u8) -> bool {
        let is_space = byte.is_ascii_whitespace();
        match self.state {
            ScanState::Start => match byte {
                b'{' => (self.depth, self.state) = (1, ScanState::Structure),
                b'[' if !self.is_batch => self.is_batch = true,
                b',' if !self.finished.is_empty() => {}
                _ if is_space => {}
                _ => self.state = ScanState::End,
            },
            ScanState::Structure => match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.close(),
                b'"' | b'\'' => self.begin_text(byte, TextRole::KeyOrValue),
                _ => {}
            },
            ScanState::AfterText if byte == b':' => {
                let is_id = self.token == b"id" && self.current.id.is_none();
                self.current.record_key(&self.token);
                self.state = if is_id { ScanState::BeforeId } else { ScanState::Structure };
            }
            ScanState::BeforeId if byte == b'"' => self.begin_text(byte, TextRole::Id),
            ScanState::BeforeId if byte == b'-' || byte.is_ascii_digit() => {
                self.token.clear();
                self.token.push(byte);
                self.state = ScanState::IdNumber;
            }
            ScanState::AfterText | ScanState::BeforeId if is_space => {}
            ScanState::IdNumber if matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') => {
                self.keep(&[byte]);
            }
            ScanState::AfterText | ScanState::BeforeId | ScanState::IdNumber => {
                if self.state == ScanState::IdNumber {
                    self.set_id();
                }
                self.state = ScanState::Structure;
                return false;
            }
            ScanState::Text { .. } | ScanState::End => {}
        }
        true
    }

    /// Scans the rest of a string; returns the text behind what was scanned.
    fn scan_text<'t>(&mut self, text: &'t [u8], quote: u8, is_escaped: bool, role: TextRole) -> &'t [u8] {
        let end = if is_escaped { Some(0) } else { memchr::memchr2(quote, b'\\', text) };
        let Some(end) = end else {
            self.keep(text);
            return &[];
        };
        let (before, rest) = text.split_at(end + 1);
        self.keep(&before[..end]);
        if !is_escaped && before[end] == quote {
            self.state = match role {
                TextRole::KeyOrValue if self.depth == 1 => ScanState::AfterText,
                TextRole::KeyOrValue => ScanState::Structure,
                TextRole::Id => {
                    self.keep(b"\"");
                    self.set_id();
                    ScanState::Structure
                }
            };
        } else {
            self.keep(&before[end..]);
            self.state = ScanState::Text { quote, is_escaped: !is_escaped, role };
        }
        rest
    }

    fn begin_text(&mut self, quote: u8, role: TextRole) {
        self.token.clear();
        if role == TextRole::Id {
            self.token.push(quote);
        }
        self.state = ScanState::Text { quote, is_escaped: false, role };
    }

    /// Appends to the current token. One that is too long keeps a byte more, and is invalid.
    fn keep(&mut self, text: &[u8]) {
        if self.depth == 1 {
            let n_most = (MAX_TOKEN_BYTES + 1).saturating_sub(self.token.len());
            self.token.extend_from_slice(&text[..text.len().min(n_most)]);
        }
    }

    fn set_id(&mut self) {
        if self.token.len() <= MAX_TOKEN_BYTES {
            self.current.id = Id::parse(&self.token);
        }
    }

    fn close(&mut self) {
        self.depth -= 1;
        if self.depth == 0 {
            let message = std::mem::take(&mut self.current);
            if self.finished.len() < MAX_MESSAGES {
                self.finished.push(message);
            }
            self.state = if self.is_batch { ScanState::Start } else { ScanState::End };
        }
    }

    /// Returns the id of the request that a single message must be the response to.
    fn answered_id(&self) -> Option<Id> {
        let message = self.finished.first().unwrap_or(&self.current);
        let is_response = !self.is_batch && message.has_answer && !message.is_call;
        message.id.clone().filter(|_| is_response)
    }

    /// Returns the messages. An incomplete one is the last.
    fn finish(self) -> impl Iterator<Item = MessageOutline> {
        let rest = (self.depth > 0).then_some(self.current);
        self.finished.into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: i64) -> AnsweredRequest {
        AnsweredRequest::Known(Id::Number(id))
    }

    #[test]
    fn a_broken_response_names_its_request_and_other_lines_do_not() {
        let check = |line: &str, expected: &[AnsweredRequest]| {
            assert_eq!(answered_requests(line.as_bytes()), expected, "{line}");
        };
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#, &[known(7)]);
        check(r#"{"result": {"id": 3, "method": "no"}, "id": 7, "jsonrpc": undefined"#, &[known(7)]);
        check(r#"{"id":7,"result":Infinity}"#, &[known(7)]);
        check(r"{'jsonrpc': '2.0', 'id': 7, 'result': None}", &[known(7)]);
        check(r#" [ {"jsonrpc":"2.0","id":7,"result":NaN}]"#, &[known(7)]);
        check(r#"[{"id":7,"result":NaN} , {"id":8,"result":{}},"x"]"#, &[known(7), known(8)]);
        let text = AnsweredRequest::Known(Id::Text("a\"b".into()));
        check(r#"{"jsonrpc":"2.0","id":"a\"b","error":NaN}"#, &[text]);
        check(r#"{"jsonrpc":"2.0","id":NaN,"result":{}}"#, &[AnsweredRequest::Unknown]);
        check(r#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#, &[AnsweredRequest::Unknown]);
        // A number that is cut off may be another one.
        check(r#"{"jsonrpc":"2.0","id":7"#, &[AnsweredRequest::Unknown]);
        check(r#"{"jsonrpc"#, &[]);
        check(r#"{"jsonrpc":"2.0"#, &[AnsweredRequest::Unknown]);
        check(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":NaN}}"#, &[]);
        check(r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":NaN}"#, &[]);
        // Banners and logs.
        for line in [
            "",
            "Listening on {}",
            "{",
            "} done",
            r#"{"level":"info","id":7,"message":NaN}"#,
            r#"DEBUG {"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#""jsonrpc": "2.0","#,
        ] {
            check(line, &[]);
        }
    }

    #[test]
    fn an_oversized_response_names_its_request_wherever_its_id_is() {
        let check = |text: &str, early: Option<AnsweredRequest>, at_end: &[AnsweredRequest]| {
            for n_bytes in [1, 7, text.len()] {
                let mut message = OversizedMessage::default();
                let found: Vec<_> =
                    text.as_bytes().chunks(n_bytes).filter_map(|part| message.push(part)).collect();
                assert_eq!(found, Vec::from_iter(early.clone()), "in parts of {n_bytes}: {text}");
                assert_eq!(message.finish(), at_end, "in parts of {n_bytes}: {text}");
            }
        };
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"text":"xx\\"#, Some(known(7)), &[]);
        check(r#"{"jsonrpc":"2.0","result":{"id":3,"text":"\"id\":4,"},"id":71}"#, Some(known(71)), &[]);
        check(r#"{"result":{"text":"xxxxx"#, None, &[AnsweredRequest::Unknown]);
        check(r#"[{"id":7,"result":{}},{"result":"xx","id":8}]"#, None, &[known(7), known(8)]);
        check(r#"{"method":"notifications/message","params":{"data":"xxx"#, None, &[]);
        check(r#"{"id":7,"method":"sampling/createMessage","params":{"data":"xxx"#, None, &[]);
        check("xxxxxxxx", None, &[]);
        let long = format!(r#"{{"id":"{}","result":{{}}}}"#, "7".repeat(300));
        check(&long, None, &[AnsweredRequest::Unknown]);
    }
}
