//! Extracts information from a stored output with a model, either by reading all of it or by searching.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::error::CallError;
use pegboard_core::model::{
    ChatMessage, ModelReply, ModelRequest, OutputReader, ToolCall, ToolChoice, ToolResult, ToolResultStatus,
    ToolSpec,
};
use pegboard_core::output::Output;
use pegboard_core::recorder::{AgentRecorder, NoopRecorder};
use pegboard_core::settings::OutputSettings;
use pegboard_core::store::StoredOutput;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use super::tool::run_blocking;
use crate::output_query::{self, OutputRequest, OutputStats, OutputView, chunks};

/// Maximum number of tokens in one reply of the model.
const MAX_OUTPUT_TOKENS: u32 = 4_096;
/// Maximum number of chunks that are read concurrently.
const MAX_CONCURRENT_CHUNKS: usize = 4;
/// Maximum size of a chunk.
const MAX_CHUNK_BYTES: usize = 262_144;
/// Maximum number of turns of a searching model.
const MAX_TURNS: usize = 10;
/// Maximum number of tool calls per turn.
const MAX_CALLS: usize = 8;
/// Reply of a model for a chunk without relevant content.
const NOTHING_FOUND: &str = "NOTHING";

/// Extraction strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtractMode {
    FullChunked,
    ReadGrep,
}

impl ExtractMode {
    /// Chooses the strategy for a view; `None` if the view needs no model.
    fn of(view: &OutputView, text: &str, settings: &OutputSettings, max_bytes: usize) -> Option<Self> {
        match view {
            OutputView::FullChunked { .. } => Some(Self::FullChunked),
            OutputView::ReadGrep { .. } => Some(Self::ReadGrep),
            // A text of few chunks or of long lines is read in full; others are searched.
            OutputView::Auto { .. } => {
                let is_dense = OutputStats::of(text.as_bytes()).average_line_bytes()
                    >= settings.avg_line_bytes_threshold;
                let mut all_chunks = chunks(text, max_bytes.max(1), settings.overlap_percent);
                let is_short = all_chunks.nth(settings.max_chunks).is_none();
                Some(if is_dense || is_short { Self::FullChunked } else { Self::ReadGrep })
            }
            OutputView::Truncate
            | OutputView::Head { .. }
            | OutputView::Tail { .. }
            | OutputView::Lines { .. }
            | OutputView::Grep(_)
            | OutputView::Search(_)
            | OutputView::JsonPath(_)
            | OutputView::Stats
            | OutputView::Next(_) => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::FullChunked => "full-chunked",
            Self::ReadGrep => "read-grep",
        }
    }
}

/// Returns the default settings with the reader's overrides.
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

/// A request to extract information from a stored output.
pub(super) struct ExtractRequest<'s> {
    pub(super) output: &'s Arc<StoredOutput>,
    pub(super) handle: &'s str,
    /// Description of the wanted information.
    pub(super) extract: &'s str,
    pub(super) settings: &'s OutputSettings,
    pub(super) max_bytes: usize,
}

impl ExtractRequest<'_> {
    /// Runs the extraction. Without a model, or if it fails, returns the beginning and the end of the output
    /// with a hint.
    pub(super) async fn answer(
        &self,
        view: &OutputView,
        reader: Option<&OutputReader>,
        recorder: Option<&dyn AgentRecorder>,
    ) -> Result<Output, CallError> {
        let (stats, mode) = self.inspect(view).await?;
        let (Ok(text), Some(mode)) = (std::str::from_utf8(&self.output.body), mode) else {
            let problem = format!("The output is not text: {stats}. Only its stats can be read.");
            return Ok(Output::failure(problem));
        };
        let why = match reader {
            None => format!("No model is configured for mode {}", mode.name()),
            Some(reader) => {
                match (Extraction { request: self, reader, recorder }).run(mode, text, &stats).await {
                    Ok(found) => return Ok(Output::new(found.into())),
                    Err(problem) => {
                        let problem = problem.trim_end_matches('.');
                        format!("The model failed in mode {}: {problem}", mode.name())
                    }
                }
            }
        };
        let note = format!(
            "{why}, so this is the beginning and the end of the output. To find something in between use mode grep, \
             search, jsonpath or lines.\n\n"
        );
        let rest = self.max_bytes.saturating_sub(note.len()).max(output_query::MIN_PAGE_BYTES);
        Ok(Output::new((note + &output_query::truncate_middle(text, rest)).into()))
    }

    /// Determines size and strategy on a blocking thread, since the output may be large.
    async fn inspect(&self, view: &OutputView) -> Result<(String, Option<ExtractMode>), CallError> {
        let (output, view) = (Arc::clone(self.output), view.clone());
        let (settings, max_bytes) = (self.settings.clone(), self.max_bytes);
        run_blocking(move |_budget| {
            let text = std::str::from_utf8(&output.body).ok();
            let mode = text.and_then(|text| ExtractMode::of(&view, text, &settings, max_bytes));
            (OutputStats::of(&output.body).to_string(), mode)
        })
        .await
    }
}

/// An extraction with a model.
struct Extraction<'s> {
    request: &'s ExtractRequest<'s>,
    reader: &'s OutputReader,
    recorder: Option<&'s dyn AgentRecorder>,
}

impl Extraction<'_> {
    /// Runs the strategy; returns the findings or the problem.
    async fn run(&self, mode: ExtractMode, text: &str, stats: &str) -> Result<String, String> {
        let found = match mode {
            ExtractMode::FullChunked => self.read_chunks(text).await?,
            ExtractMode::ReadGrep => self.search_with_tools(stats).await?,
        };
        Ok(output_query::truncate_middle(found.trim(), self.request.max_bytes))
    }

    /// Has the model read every chunk separately, then merges the findings.
    async fn read_chunks(&self, text: &str) -> Result<String, String> {
        let pieces = self.chunks_within_limit(text)?;
        let n_pieces = pieces.len();
        let work = pieces.into_iter().enumerate().map(|(index, piece)| async move {
            let prompt = format!(
                "Part {} of {n_pieces} of a document follows after the line. What is asked: {}\n---\n{piece}",
                index + 1,
                self.request.extract
            );
            self.ask_model(&model_request(include_str!("read_part.md"), prompt)).await.map(|reply| reply.text)
        });
        let work: Vec<_> = work.collect();
        let read: Vec<Result<String, String>> =
            stream::iter(work).buffered(MAX_CONCURRENT_CHUNKS).collect().await;
        let mut found = Vec::new();
        for part in read {
            let part = part?;
            if !part.trim().is_empty() && part.trim() != NOTHING_FOUND {
                found.push(part);
            }
        }
        match &mut found[..] {
            [] => Ok(format!("Nothing in the output is about this: {}", self.request.extract)),
            [one] => Ok(std::mem::take(one)),
            several => {
                let prompt =
                    format!("What is asked: {}\n---\n{}", self.request.extract, several.join("\n---\n"));
                Ok(self.ask_model(&model_request(include_str!("put_together.md"), prompt)).await?.text)
            }
        }
    }

    /// Splits the text into at most the configured number of chunks.
    fn chunks_within_limit<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, String> {
        let most = self.request.settings.max_chunks.max(1);
        // A third of the context window, leaving room for the prompt and the reply.
        let window = self.reader.model.info().context_window;
        let by_window = window.and_then(|tokens| usize::try_from(tokens.saturating_mul(4) / 3).ok());
        let largest = by_window.unwrap_or(MAX_CHUNK_BYTES).min(MAX_CHUNK_BYTES);
        let mut size = self.request.max_bytes.min(largest).max(1);
        loop {
            let pieces: Vec<&str> =
                chunks(text, size, self.request.settings.overlap_percent).take(most + 1).collect();
            if pieces.len() <= most {
                return Ok(pieces);
            }
            if size == largest {
                return Err(format!("the output is more than {most} chunks of {size} bytes"));
            }
            size = size.saturating_mul(2).min(largest);
        }
    }

    /// Lets the model search and read lines until it has the answer.
    async fn search_with_tools(&self, stats: &str) -> Result<String, String> {
        let prompt = format!("The document has {stats}. What is asked: {}", self.request.extract);
        let mut request = model_request(include_str!("search.md"), prompt);
        request.tools = search_tools();
        for turn in 1..=MAX_TURNS {
            if turn == MAX_TURNS {
                request.tool_choice = ToolChoice::None;
            }
            let reply = self.ask_model(&request).await?;
            if reply.tool_calls.is_empty() {
                let text = reply.text.trim();
                return if text.is_empty() {
                    Err("it returned no text".to_owned())
                } else {
                    Ok(text.to_owned())
                };
            }
            request.messages.push(reply.to_message());
            let mut results = Vec::new();
            for (index, call) in reply.tool_calls.iter().enumerate() {
                let answer = if index < MAX_CALLS {
                    self.run_tool_call(call).await
                } else {
                    Err(format!("at most {MAX_CALLS} calls per turn"))
                };
                results.push(result(call, answer));
            }
            request.messages.push(ChatMessage::ToolResults(results));
        }
        Err(format!("it did not find an answer in {MAX_TURNS} turns"))
    }

    /// Executes one tool call of the model.
    async fn run_tool_call(&self, call: &ToolCall) -> Result<String, String> {
        let mut arguments = call.object().to_value();
        let mode = match call.name.as_str() {
            "grep" => "grep",
            "read" => "lines",
            other => return Err(format!("there is no tool '{}'; use grep or read", clipped(other, 40))),
        };
        let Value::Object(members) = &mut arguments else { return Err("expected an object".to_owned()) };
        members.insert("mode".to_owned(), mode.into());
        members.insert("handle".to_owned(), self.request.handle.into());
        let view = OutputRequest::parse(&arguments).map_err(|error| error.to_string())?.view;
        let (output, max_bytes) = (Arc::clone(self.request.output), self.request.max_bytes);
        let read = run_blocking(move |budget| {
            let StoredOutput { body, content_type, .. } = &*output;
            output_query::read_within(body, content_type, &view, max_bytes, budget)
        });
        let page = read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(if page.text.is_empty() { "nothing".to_owned() } else { page.text })
    }

    async fn ask_model(&self, request: &ModelRequest) -> Result<ModelReply, String> {
        let model = &self.reader.model;
        let n_bytes = request.estimated_tokens().saturating_mul(4);
        let span = self.recorder.unwrap_or(&NoopRecorder).model_request(&model.info().name, n_bytes);
        let reply = model.answer(request, &|_piece| {}).await;
        span.end(reply.as_ref());
        reply.map_err(|error| error.to_string())
    }
}

fn model_request(system: &str, prompt: String) -> ModelRequest {
    ModelRequest {
        system: system.trim_end().to_owned(),
        messages: vec![ChatMessage::user(prompt)],
        max_output_tokens: Some(MAX_OUTPUT_TOKENS),
        ..ModelRequest::default()
    }
}

fn result(call: &ToolCall, answer: Result<String, String>) -> ToolResult {
    let (text, status) = match answer {
        Ok(text) => (text, ToolResultStatus::Done),
        Err(problem) => (problem, ToolResultStatus::Failed),
    };
    ToolResult { call_id: call.id.clone(), text, status }
}

/// Returns the tools of a searching model, with the parameters of the same modes of `tool_output`.
fn search_tools() -> Vec<ToolSpec> {
    let tool_spec = |name: &str, description: &str, schema: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: RawJson::from(schema),
    };
    vec![
        tool_spec(
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
        tool_spec(
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
