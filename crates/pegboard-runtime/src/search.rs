//! Full-text search over tools.
//!
//! Each tool is a document of weighted fields, ranked with BM25. Words are split at case changes, digits and
//! punctuation, and stemmed to the singular.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegboard_core::id::ServerName;
use pegboard_core::text::clip;

use crate::catalogue::{CatalogueTool, Snapshot, ToolboxScope};
use words::{for_each_word, joined_word};

mod words;

/// Maximum number of hits per search.
pub const MAX_HITS: usize = 100;

/// Maximum length of a query.
const MAX_QUERY_BYTES: usize = 512;
const MAX_QUERY_WORDS: usize = 32;
/// Limits of the indexed text per tool: servers may send any amount.
const MAX_DESCRIPTION_BYTES: usize = 4 * 1024;
const MAX_TITLE_BYTES: usize = 256;
const MAX_PARAMETERS: usize = 256;
const MAX_TAGS: usize = 64;
/// Maximum number of terms that a prefix expands to.
const MAX_PREFIX_TERMS: usize = 64;
/// Minimum length of a prefix.
const MIN_PREFIX_BYTES: usize = 2;
/// Weight of a prefix match relative to an exact one.
const PREFIX_WEIGHT: f64 = 0.5;

/// BM25 parameter: saturation of term frequency.
const K1: f64 = 1.2;
/// BM25 parameter: length normalization.
const B: f32 = 0.75;

/// A search for tools.
///
/// ```
/// use pegboard_runtime::search::SearchQuery;
///
/// let query = SearchQuery { n_most: 3, ..SearchQuery::new("create issue") };
/// assert_eq!(query.text, "create issue");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SearchQuery<'q> {
    /// Query words. If empty, all tools that pass the filters match.
    pub text: &'q str,
    /// The tool has at least one of these tags; ignored if empty.
    pub any_tags: &'q [String],
    /// The tool has all of these tags.
    pub all_tags: &'q [String],
    /// The tool belongs to this server.
    pub server: Option<&'q ServerName>,
    /// The tool is in scope.
    pub scope: ToolboxScope<'q>,
    /// Maximum number of hits, at most [`MAX_HITS`].
    pub n_most: usize,
}

impl<'q> SearchQuery<'q> {
    /// Creates a query for the ten best tools, without filters.
    pub fn new(text: &'q str) -> Self {
        Self { text, any_tags: &[], all_tags: &[], server: None, scope: ToolboxScope::All, n_most: 10 }
    }

    fn permits(&self, tool: &CatalogueTool) -> bool {
        let has = |tag: &String| tool.entry.tags().iter().any(|own| own.eq_ignore_ascii_case(tag));
        self.server.is_none_or(|server| *server == tool.id.server)
            && self.scope.has(&tool.id.toolbox)
            && self.all_tags.iter().all(has)
            && (self.any_tags.is_empty() || self.any_tags.iter().any(has))
    }

    /// Returns the distinct words of the query.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for text in clip(self.text, MAX_QUERY_BYTES).split_whitespace() {
            // The parts come last, so that only a part can be matched as a prefix.
            words.extend(joined_word(text));
            for_each_word(text, |word| words.push(word));
        }
        let mut seen = HashSet::new();
        words.retain(|word| seen.insert(word.clone()));
        words.truncate(MAX_QUERY_WORDS);
        words
    }
}

/// A tool found by a search.
#[derive(Clone, Debug)]
pub struct SearchHit<'s> {
    /// The tool.
    pub tool: &'s Arc<CatalogueTool>,
    /// Score; comparable within one search only.
    pub score: f64,
}

impl Snapshot {
    /// Returns the tools that match a query, best first; ties are in configuration order.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::Snapshot;
    /// use pegboard_runtime::search::SearchQuery;
    ///
    /// assert!(Snapshot::default().search(&SearchQuery::new("create issue")).is_empty());
    /// ```
    pub fn search(&self, query: &SearchQuery<'_>) -> Vec<SearchHit<'_>> {
        let n_most = query.n_most.min(MAX_HITS);
        let permitted = |tool: &&Arc<CatalogueTool>| query.permits(tool);
        if query.text.trim().is_empty() {
            let tools = self.tools().iter().filter(permitted).take(n_most);
            return tools.map(|tool| SearchHit { tool, score: 0.0 }).collect();
        }
        let scores = self.index().scores(&query.words());
        let mut found: Vec<(usize, f64)> =
            scores.into_iter().filter(|(at, _)| query.permits(&self.tools()[*at])).collect();
        let best_first = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if found.len() > n_most {
            found.select_nth_unstable_by(n_most, best_first);
            found.truncate(n_most);
        }
        found.sort_unstable_by(best_first);
        found.into_iter().map(|(at, score)| SearchHit { tool: &self.tools()[at], score }).collect()
    }
}

/// Inverted index of the tools.
#[derive(Debug)]
pub(crate) struct SearchIndex {
    /// Sorted by word.
    terms: Vec<(String, Vec<Posting>)>,
    n_tools: usize,
}

/// Occurrence of a word in a tool.
#[derive(Clone, Copy, Debug)]
struct Posting {
    /// Index of the tool.
    tool: u32,
    /// Weighted term frequency.
    weight: f32,
}

/// A field of a tool, with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SearchField {
    Name,
    Title,
    Tags,
    Server,
    Parameters,
    Description,
}

impl SearchField {
    const COUNT: usize = 6;

    fn weight(self) -> f32 {
        match self {
            Self::Name => 4.0,
            Self::Title | Self::Tags => 3.0,
            Self::Server => 2.0,
            Self::Parameters => 1.5,
            Self::Description => 1.0,
        }
    }
}

/// The indexed words of one tool, with their fields.
#[derive(Default)]
struct ToolDocument {
    words: Vec<(u32, SearchField)>,
    lengths: [u16; SearchField::COUNT],
}

impl SearchIndex {
    pub(crate) fn of(tools: &[Arc<CatalogueTool>]) -> Self {
        let mut term_ids: HashMap<String, u32> = HashMap::new();
        let documents: Vec<ToolDocument> =
            tools.iter().map(|tool| ToolDocument::of(tool, &mut term_ids)).collect();
        let averages = average_lengths(&documents);
        let mut postings: Vec<Vec<Posting>> = vec![Vec::new(); term_ids.len()];
        for (tool, mut document) in (0..).zip(documents) {
            document.words.sort_unstable();
            for same in document.words.chunk_by(|a, b| a.0 == b.0) {
                let share = |field: SearchField| {
                    let length = f32::from(document.lengths[field as usize]) / averages[field as usize];
                    field.weight() / (1.0 - B + B * length)
                };
                let weight = same.iter().map(|(_, field)| share(*field)).sum();
                postings[same[0].0 as usize].push(Posting { tool, weight });
            }
        }
        let mut terms: Vec<(String, Vec<Posting>)> = term_ids
            .into_iter()
            .map(|(word, number)| (word, std::mem::take(&mut postings[number as usize])))
            .collect();
        terms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Self { terms, n_tools: tools.len() }
    }

    /// Returns the score of every tool that contains one of the words. The last word also matches as a
    /// prefix.
    fn scores(&self, words: &[String]) -> HashMap<usize, f64> {
        let mut scores: HashMap<usize, f64> = HashMap::new();
        for (n_left, word) in (0..words.len()).rev().zip(words) {
            let mut best: HashMap<u32, f64> = HashMap::new();
            let start = self.terms.partition_point(|(term, _)| term < word);
            let is_prefix = n_left == 0 && word.len() >= MIN_PREFIX_BYTES;
            let n_terms = if is_prefix { MAX_PREFIX_TERMS } else { 1 };
            for (term, postings) in self.terms[start..].iter().take(n_terms) {
                let share = match term.strip_prefix(word.as_str()) {
                    Some("") => 1.0,
                    Some(_) if is_prefix => PREFIX_WEIGHT,
                    Some(_) | None => break,
                };
                let inverse_document_frequency = self.inverse_document_frequency(postings.len());
                for posting in postings {
                    let weight = f64::from(posting.weight);
                    let score = share * inverse_document_frequency * weight * (K1 + 1.0) / (weight + K1);
                    let known = best.entry(posting.tool).or_default();
                    *known = known.max(score);
                }
            }
            for (tool, score) in best {
                *scores.entry(tool as usize).or_default() += score;
            }
        }
        scores
    }

    /// Returns the inverse document frequency.
    fn inverse_document_frequency(&self, n_having: usize) -> f64 {
        let real = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let (having, others) = (real(n_having), real(self.n_tools.saturating_sub(n_having)));
        ((others + 0.5) / (having + 0.5)).ln_1p()
    }
}

impl ToolDocument {
    fn of(tool: &CatalogueTool, term_ids: &mut HashMap<String, u32>) -> Self {
        let mut document = Self::default();
        let entry = &tool.entry;
        document.read_name(SearchField::Name, tool.id.name.as_str(), term_ids);
        document.read_name(SearchField::Server, tool.id.server.as_str(), term_ids);
        document.read(SearchField::Title, clip(entry.title().unwrap_or_default(), MAX_TITLE_BYTES), term_ids);
        for tag in entry.tags().iter().take(MAX_TAGS) {
            document.read_name(SearchField::Tags, clip(tag, MAX_TITLE_BYTES), term_ids);
        }
        let properties = entry.input_schema().as_json().get("properties").and_then(|all| all.as_object());
        for name in properties.into_iter().flat_map(serde_json::Map::keys).take(MAX_PARAMETERS) {
            document.read(SearchField::Parameters, clip(name, MAX_TITLE_BYTES), term_ids);
        }
        document.read(SearchField::Description, clip(entry.description(), MAX_DESCRIPTION_BYTES), term_ids);
        document
    }

    /// Indexes the words of a name, and the name as one word.
    fn read_name(&mut self, field: SearchField, name: &str, term_ids: &mut HashMap<String, u32>) {
        self.read(field, name, term_ids);
        if let Some(whole) = joined_word(name) {
            self.add(field, whole, term_ids);
        }
    }

    fn read(&mut self, field: SearchField, text: &str, term_ids: &mut HashMap<String, u32>) {
        for_each_word(text, |word| self.add(field, word, term_ids));
    }

    fn add(&mut self, field: SearchField, word: String, term_ids: &mut HashMap<String, u32>) {
        let next = u32::try_from(term_ids.len()).unwrap_or(u32::MAX);
        self.words.push((*term_ids.entry(word).or_insert(next), field));
        let length = &mut self.lengths[field as usize];
        *length = length.saturating_add(1);
    }
}

/// Returns the average length of each field over the tools that have it; never 0.
fn average_lengths(documents: &[ToolDocument]) -> [f32; SearchField::COUNT] {
    let mut averages = [1.0; SearchField::COUNT];
    for (field, average) in averages.iter_mut().enumerate() {
        let lengths = documents.iter().map(|document| f32::from(document.lengths[field]));
        let (n_having, sum) = lengths
            .filter(|length| *length > 0.0)
            .fold((0.0, 0.0), |(n_having, sum), length| (n_having + 1.0, sum + length));
        if n_having > 0.0 {
            *average = sum / n_having;
        }
    }
    averages
}
