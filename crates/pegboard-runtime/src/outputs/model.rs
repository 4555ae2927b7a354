//! What a sentence asks of a stored output, found by a model: one that reads everything, or one that searches.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::diary::{Diary, NoDiary};
use pegboard_core::error::CallError;
use pegboard_core::model::{
    Message, ModelReply, ModelRequest, OutputReader, ToolCall, ToolChoice, ToolOffer, ToolResult, Verdict,
};
use pegboard_core::output::Output;
use pegboard_core::settings::OutputSettings;
use pegboard_core::store::StoredOutput;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use super::tool::aside;
use crate::reading::{self, Request, Stats, View, chunks};

/// How many tokens a model may write in one reply.
const MAX_OUTPUT_TOKENS: u32 = 4_096;
/// How many chunks are read at the same time.
const N_AT_ONCE: usize = 4;
/// The largest chunk.
const MAX_CHUNK_BYTES: usize = 262_144;
/// How often a model that searches is asked.
const MAX_TURNS: usize = 10;
/// How many searches it may make in one turn.
const MAX_CALLS: usize = 8;
/// What a model says of a chunk that has nothing of what is looked for.
const NOTHING: &str = "NOTHING";

/// How an output is read by a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    FullChunked,
    ReadGrep,
}

impl Mode {
    /// How a text is read for a view; `None` if the view needs no model.
    fn of(view: &View, text: &str, settings: &OutputSettings, max_bytes: usize) -> Option<Self> {
        match view {
            View::FullChunked { .. } => Some(Self::FullChunked),
            View::ReadGrep { .. } => Some(Self::ReadGrep),
            // A text of few chunks or of long lines is read whole; in others one searches.
            View::Auto { .. } => {
                let is_dense =
                    Stats::of(text.as_bytes()).average_line_bytes() >= settings.avg_line_bytes_threshold;
                let mut n_chunks = chunks(text, max_bytes.max(1), settings.overlap_percent);
                let is_short = n_chunks.nth(settings.max_chunks).is_none();
                Some(if is_dense || is_short { Self::FullChunked } else { Self::ReadGrep })
            }
            View::Truncate
            | View::Head { .. }
            | View::Tail { .. }
            | View::Lines { .. }
            | View::Grep(_)
            | View::Search(_)
            | View::JsonPath(_)
            | View::Stats
            | View::Next(_) => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::FullChunked => "full-chunked",
            Self::ReadGrep => "read-grep",
        }
    }
}

/// The settings of everybody, but for what the reader says otherwise.
pub(super) fn settings_of(reader: Option<&OutputReader>, for_all: &OutputSettings) -> OutputSettings {
    let mut settings = for_all.clone();
    if let Some(reader) = reader {
        settings.max_chunks = reader.max_chunks.unwrap_or(settings.max_chunks);
        settings.overlap_percent = reader.overlap_percent.unwrap_or(settings.overlap_percent);
        settings.avg_line_bytes_threshold =
            reader.avg_line_bytes_threshold.unwrap_or(settings.avg_line_bytes_threshold);
    }
    settings
}

/// What is asked of a stored output.
pub(super) struct Asked<'s> {
    pub(super) output: &'s Arc<StoredOutput>,
    pub(super) handle: &'s str,
    /// What is looked for.
    pub(super) extract: &'s str,
    pub(super) settings: &'s OutputSettings,
    pub(super) max_bytes: usize,
}

impl Asked<'_> {
    /// What is asked for. Where no model finds it, the beginning and the end, and how to find the rest.
    pub(super) async fn answer(
        &self,
        view: &View,
        reader: Option<&OutputReader>,
        diary: Option<&dyn Diary>,
    ) -> Result<Output, CallError> {
        let (stats, mode) = self.look_over(view).await?;
        let (Ok(text), Some(mode)) = (std::str::from_utf8(&self.output.body), mode) else {
            let problem = format!("The output is no text: {stats}. Only its stats can be read.");
            return Ok(Output::failure(problem));
        };
        let why = match reader {
            None => format!("No model is there to carry out mode {}", mode.name()),
            Some(reader) => match (Search { asked: self, reader, diary }).run(mode, text, &stats).await {
                Ok(found) => return Ok(Output::new(found.into())),
                Err(problem) => {
                    let problem = problem.trim_end_matches('.');
                    format!("The model did not carry out mode {}: {problem}", mode.name())
                }
            },
        };
        let note = format!(
            "{why}, so this is the beginning and the end of the output. To find something in between use mode grep, \
             search, jsonpath or lines.\n\n"
        );
        let rest = self.max_bytes.saturating_sub(note.len()).max(reading::MIN_PAGE_BYTES);
        Ok(Output::new((note + &reading::truncated(text, rest)).into()))
    }

    /// How large the output is, and how it is read; that takes a while if it is large.
    async fn look_over(&self, view: &View) -> Result<(String, Option<Mode>), CallError> {
        let (output, view) = (Arc::clone(self.output), view.clone());
        let (settings, max_bytes) = (self.settings.clone(), self.max_bytes);
        aside(move |_effort| {
            let text = std::str::from_utf8(&output.body).ok();
            let mode = text.and_then(|text| Mode::of(&view, text, &settings, max_bytes));
            (Stats::of(&output.body).to_string(), mode)
        })
        .await
    }
}

/// A stored output that a model looks something up in.
struct Search<'s> {
    asked: &'s Asked<'s>,
    reader: &'s OutputReader,
    diary: Option<&'s dyn Diary>,
}

impl Search<'_> {
    /// What the model found, or why it did not.
    async fn run(&self, mode: Mode, text: &str, stats: &str) -> Result<String, String> {
        let found = match mode {
            Mode::FullChunked => self.read_all(text).await?,
            Mode::ReadGrep => self.search(stats).await?,
        };
        Ok(reading::truncated(found.trim(), self.asked.max_bytes))
    }

    /// Every chunk is read by itself, and what was found put together.
    async fn read_all(&self, text: &str) -> Result<String, String> {
        let pieces = self.pieces(text)?;
        let n_pieces = pieces.len();
        let work = pieces.into_iter().enumerate().map(|(index, piece)| async move {
            let asked = format!(
                "Part {} of {n_pieces} of a document follows after the line. What is asked: {}\n---\n{piece}",
                index + 1,
                self.asked.extract
            );
            self.ask(&request(include_str!("read_part.md"), asked)).await.map(|reply| reply.text)
        });
        let work: Vec<_> = work.collect();
        let read: Vec<Result<String, String>> = stream::iter(work).buffered(N_AT_ONCE).collect().await;
        let mut found = Vec::new();
        for part in read {
            let part = part?;
            if !part.trim().is_empty() && part.trim() != NOTHING {
                found.push(part);
            }
        }
        match &mut found[..] {
            [] => Ok(format!("Nothing in the output is about this: {}", self.asked.extract)),
            [one] => Ok(std::mem::take(one)),
            several => {
                let asked =
                    format!("What is asked: {}\n---\n{}", self.asked.extract, several.join("\n---\n"));
                Ok(self.ask(&request(include_str!("put_together.md"), asked)).await?.text)
            }
        }
    }

    /// The text in as many pieces as may be read at most, or in fewer.
    fn pieces<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, String> {
        let most = self.asked.settings.max_chunks.max(1);
        // A third of what the model can read, so that there is room for what it is asked and what it writes.
        let window = self.reader.model.facts().context_window;
        let by_window = window.and_then(|tokens| usize::try_from(tokens.saturating_mul(4) / 3).ok());
        let largest = by_window.unwrap_or(MAX_CHUNK_BYTES).min(MAX_CHUNK_BYTES);
        let mut size = self.asked.max_bytes.min(largest).max(1);
        loop {
            let pieces: Vec<&str> =
                chunks(text, size, self.asked.settings.overlap_percent).take(most + 1).collect();
            if pieces.len() <= most {
                return Ok(pieces);
            }
            if size == largest {
                return Err(format!("the output is more than {most} chunks of {size} bytes"));
            }
            size = size.saturating_mul(2).min(largest);
        }
    }

    /// The model looks at lines and searches until it knows.
    async fn search(&self, stats: &str) -> Result<String, String> {
        let asked = format!("The document has {stats}. What is asked: {}", self.asked.extract);
        let mut request = request(include_str!("search.md"), asked);
        request.tools = offers();
        for turn in 1..=MAX_TURNS {
            if turn == MAX_TURNS {
                request.tool_choice = ToolChoice::None;
            }
            let reply = self.ask(&request).await?;
            if reply.tool_calls.is_empty() {
                let text = reply.text.trim();
                return if text.is_empty() { Err("it said nothing".to_owned()) } else { Ok(text.to_owned()) };
            }
            request.messages.push(reply.to_message());
            let mut results = Vec::new();
            for (index, call) in reply.tool_calls.iter().enumerate() {
                let answer = if index < MAX_CALLS {
                    self.look(call).await
                } else {
                    Err(format!("at most {MAX_CALLS} calls are made at once"))
                };
                results.push(result(call, answer));
            }
            request.messages.push(Message::ToolResults(results));
        }
        Err(format!("it did not find an answer in {MAX_TURNS} turns"))
    }

    /// One look at the output.
    async fn look(&self, call: &ToolCall) -> Result<String, String> {
        let mut arguments = call.object().to_value();
        let mode = match call.name.as_str() {
            "grep" => "grep",
            "read" => "lines",
            other => return Err(format!("there is no tool '{}'; use grep or read", clipped(other, 40))),
        };
        let Value::Object(members) = &mut arguments else { return Err("give an object".to_owned()) };
        members.insert("mode".to_owned(), mode.into());
        members.insert("handle".to_owned(), self.asked.handle.into());
        let view = Request::parse(&arguments).map_err(|error| error.to_string())?.view;
        let (output, max_bytes) = (Arc::clone(self.asked.output), self.asked.max_bytes);
        let read = aside(move |effort| {
            let StoredOutput { body, content_type, .. } = &*output;
            reading::read_within(body, content_type, &view, max_bytes, effort)
        });
        let reading = read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(if reading.text.is_empty() { "nothing".to_owned() } else { reading.text })
    }

    async fn ask(&self, request: &ModelRequest) -> Result<ModelReply, String> {
        let model = &self.reader.model;
        let n_bytes = request.estimated_tokens().saturating_mul(4);
        let note = self.diary.unwrap_or(&NoDiary).model(&model.facts().name, n_bytes);
        let reply = model.answer(request, &|_piece| {}).await;
        note.end(reply.as_ref());
        reply.map_err(|error| error.to_string())
    }
}

fn request(system: &str, asked: String) -> ModelRequest {
    ModelRequest {
        system: system.trim_end().to_owned(),
        messages: vec![Message::user(asked)],
        max_output_tokens: Some(MAX_OUTPUT_TOKENS),
        ..ModelRequest::default()
    }
}

fn result(call: &ToolCall, answer: Result<String, String>) -> ToolResult {
    let (text, verdict) = match answer {
        Ok(text) => (text, Verdict::Done),
        Err(problem) => (problem, Verdict::Failed),
    };
    ToolResult { call_id: call.id.clone(), text, verdict }
}

/// The two tools of a model that searches, with the parameters that `tool_output` has for the same.
fn offers() -> Vec<ToolOffer> {
    let offer = |name: &str, description: &str, schema: Value| ToolOffer {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: RawJson::from(schema),
    };
    vec![
        offer(
            "grep",
            "The lines that match a regular expression, with their numbers.",
            json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string"},
                    "ignoreCase": {"type": "boolean"},
                    "context": {"type": "integer", "minimum": 0},
                    "maxMatches": {"type": "integer", "minimum": 1}
                },
                "required": ["pattern"]
            }),
        ),
        offer(
            "read",
            "Some lines, counted from 1.",
            json!({
                "type": "object",
                "properties": {"from": {"type": "integer", "minimum": 1}, "to": {"type": "integer", "minimum": 1}},
                "required": ["from"]
            }),
        ),
    ]
}
