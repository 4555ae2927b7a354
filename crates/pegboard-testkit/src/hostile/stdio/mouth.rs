//! How messages become bytes, well or badly.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::Mode;
use crate::hostile::manners;

/// How long a server that drips takes for a byte.
const DRIP: Duration = Duration::from_millis(200);
/// How much a huge line has.
const HUGE: usize = 64 * 1024 * 1024;

/// What a server speaks with.
pub(super) struct Mouth {
    mode: Mode,
}

impl Mouth {
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode }
    }

    /// Says something, as the mode says it.
    pub(super) fn say(&mut self, message: &Value) -> io::Result<()> {
        let text = message.to_string();
        match self.mode {
            Mode::Garbage => self.bytes(format!("DEBUG answering {{\n{text}\n}} done\n").as_bytes()),
            Mode::Binary => {
                let junk: Vec<u8> = (0..=u8::MAX).filter(|byte| *byte != b'\n').collect();
                self.bytes(&[&junk[..], b"\n", text.as_bytes(), b"\n"].concat())
            }
            Mode::Utf16 => {
                let units = format!("{text}\n");
                self.bytes(&units.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>())
            }
            Mode::Crlf => self.bytes(format!("{text}\r\n\r\n").as_bytes()),
            Mode::SplitWrites => {
                let line = format!("{text}\n");
                line.as_bytes().chunks(7).try_for_each(|piece| {
                    std::thread::yield_now();
                    self.bytes(piece)
                })
            }
            Mode::Batch => self.bytes(format!("[{text}]\n").as_bytes()),
            _ => self.bytes(format!("{text}\n").as_bytes()),
        }
    }

    /// Says the last thing.
    pub(super) fn say_last(&mut self, message: &Value) -> io::Result<()> {
        let end = if self.mode == Mode::NoNewline { "" } else { "\n" };
        self.bytes(format!("{message}{end}").as_bytes())
    }

    /// Says the same thing again and again.
    pub(super) fn say_often(&mut self, message: &Value, n_times: usize) -> io::Result<()> {
        self.bytes(format!("{message}\n").repeat(n_times).as_bytes())
    }

    /// Says something byte by byte.
    pub(super) fn drip(&mut self, message: &Value) -> io::Result<()> {
        for byte in format!("{message}\n").bytes() {
            self.bytes(&[byte])?;
            std::thread::sleep(DRIP);
        }
        Ok(())
    }

    /// Says more than anybody wants to hear.
    pub(super) fn huge_line(&mut self, answer: &Value) -> io::Result<()> {
        // The id comes first, as it does with most servers.
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"text":""#, answer["id"]);
        self.bytes(head.as_bytes())?;
        let piece = b"x".repeat(64 * 1024);
        (0..HUGE / piece.len()).try_for_each(|_| self.bytes(&piece))?;
        self.bytes(b"\"}}\n")
    }

    /// Never finds an end.
    pub(super) fn endless_line(&mut self) -> io::Result<()> {
        let piece = b"x".repeat(64 * 1024);
        loop {
            self.bytes(&piece)?;
        }
    }

    /// Never stops.
    pub(super) fn flood(&mut self) -> io::Result<()> {
        let params = json!({"level": "info", "data": "x".repeat(1000)});
        let notification = manners::notification("notifications/message", &params);
        loop {
            self.say_often(&notification, 64)?;
        }
    }

    #[expect(clippy::unused_self, reason = "only a mouth speaks")]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}
