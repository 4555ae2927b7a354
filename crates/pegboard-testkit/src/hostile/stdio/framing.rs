//! Message framing, correct or faulty.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::StdioFault;
use crate::hostile::well_behaved;

/// Delay between bytes.
const DRIP_DELAY: Duration = Duration::from_millis(200);
/// Size of a huge line.
const HUGE_BYTES: usize = 64 * 1024 * 1024;

/// Writes messages in the framing of a fault mode.
pub(super) struct FrameWriter {
    mode: StdioFault,
}

impl FrameWriter {
    pub(super) fn new(mode: StdioFault) -> Self {
        Self { mode }
    }

    /// Writes a message in the framing of the mode.
    pub(super) fn write_message(&mut self, message: &Value) -> io::Result<()> {
        let text = message.to_string();
        match self.mode {
            StdioFault::Garbage => {
                self.write_bytes(format!("DEBUG answering {{\n{text}\n}} done\n").as_bytes())
            }
            StdioFault::Binary => {
                let junk: Vec<u8> = (0..=u8::MAX).filter(|byte| *byte != b'\n').collect();
                self.write_bytes(&[&junk[..], b"\n", text.as_bytes(), b"\n"].concat())
            }
            StdioFault::Utf16 => {
                let units = format!("{text}\n");
                self.write_bytes(&units.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>())
            }
            StdioFault::Crlf => self.write_bytes(format!("{text}\r\n\r\n").as_bytes()),
            StdioFault::SplitWrites => {
                let line = format!("{text}\n");
                line.as_bytes().chunks(7).try_for_each(|piece| {
                    std::thread::yield_now();
                    self.write_bytes(piece)
                })
            }
            StdioFault::Batch => self.write_bytes(format!("[{text}]\n").as_bytes()),
            _ => self.write_bytes(format!("{text}\n").as_bytes()),
        }
    }

    /// Writes the last message.
    pub(super) fn write_last(&mut self, message: &Value) -> io::Result<()> {
        let end = if self.mode == StdioFault::NoNewline { "" } else { "\n" };
        self.write_bytes(format!("{message}{end}").as_bytes())
    }

    /// Writes a message many times.
    pub(super) fn write_repeated(&mut self, message: &Value, n_times: usize) -> io::Result<()> {
        self.write_bytes(format!("{message}\n").repeat(n_times).as_bytes())
    }

    /// Writes a message byte by byte.
    pub(super) fn write_slowly(&mut self, message: &Value) -> io::Result<()> {
        for byte in format!("{message}\n").bytes() {
            self.write_bytes(&[byte])?;
            std::thread::sleep(DRIP_DELAY);
        }
        Ok(())
    }

    /// Writes a huge line.
    pub(super) fn huge_line(&mut self, answer: &Value) -> io::Result<()> {
        // The id comes first, as in most servers.
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"text":""#, answer["id"]);
        self.write_bytes(head.as_bytes())?;
        let piece = b"x".repeat(64 * 1024);
        (0..HUGE_BYTES / piece.len()).try_for_each(|_| self.write_bytes(&piece))?;
        self.write_bytes(b"\"}}\n")
    }

    /// Writes an endless line.
    pub(super) fn endless_line(&mut self) -> io::Result<()> {
        let piece = b"x".repeat(64 * 1024);
        loop {
            self.write_bytes(&piece)?;
        }
    }

    /// Writes endless notifications.
    pub(super) fn flood(&mut self) -> io::Result<()> {
        let params = json!({"level": "info", "data": "x".repeat(1000)});
        let notification = well_behaved::notification("notifications/message", &params);
        loop {
            self.write_repeated(&notification, 64)?;
        }
    }

    #[expect(clippy::unused_self, reason = "all output goes through the writer")]
    pub(super) fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}
