//! Tools by what they are about: the words of a query against the words of every tool, best first.
//!
//! Each tool is a document of weighted fields, ranked by how rare a word is among all tools and how much of a field it
//! makes up. Words are split where names change case, at digits and at punctuation, and lose their plural.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegboard_core::id::ServerName;
use pegboard_core::text::clip;

use crate::catalogue::{Scope, Snapshot, Tool};
use words::{for_each_word, joined_word};

mod words;

/// How many tools a search finds at most.
pub const MAX_HITS: usize = 100;

/// How much of a query is read.
const MAX_QUERY_BYTES: usize = 512;
const MAX_QUERY_WORDS: usize = 32;
/// How much of a tool is read: servers write what they like.
const MAX_DESCRIPTION_BYTES: usize = 4 * 1024;
const MAX_TITLE_BYTES: usize = 256;
const MAX_PARAMETERS: usize = 256;
const MAX_TAGS: usize = 64;
/// How many words the beginning of one may stand for.
const MAX_ENDINGS: usize = 64;
/// From how many bytes on the last word may be the beginning of one.
const MIN_PREFIX_BYTES: usize = 2;
/// What a word counts that only begins like the one that was asked for.
const PREFIX_SHARE: f64 = 0.5;

/// How soon more of the same word stops to count.
const K1: f64 = 1.2;
/// How much a long field counts less than a short one.
const B: f32 = 0.75;

/// What to look for, and where.
///
/// ```
/// use pegboard_runtime::search::Query;
///
/// let query = Query { n_most: 3, ..Query::new("create issue") };
/// assert_eq!(query.text, "create issue");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// Words. Without any, all tools are found that pass the rest.
    pub text: &'q str,
    /// The tool has one of these tags, if there are any.
    pub any_tags: &'q [String],
    /// The tool has all of these tags.
    pub all_tags: &'q [String],
    /// The tool is of this server.
    pub server: Option<&'q ServerName>,
    /// The tool is in one of these toolboxes.
    pub scope: Scope<'q>,
    /// How many to find, [`MAX_HITS`] at most.
    pub n_most: usize,
}

impl<'q> Query<'q> {
    /// The ten best tools for a text, wherever they are.
    pub fn new(text: &'q str) -> Self {
        Self { text, any_tags: &[], all_tags: &[], server: None, scope: Scope::All, n_most: 10 }
    }

    fn permits(&self, tool: &Tool) -> bool {
        let has = |tag: &String| tool.entry.tags().iter().any(|own| own.eq_ignore_ascii_case(tag));
        self.server.is_none_or(|server| *server == tool.id.server)
            && self.scope.has(&tool.id.toolbox)
            && self.all_tags.iter().all(has)
            && (self.any_tags.is_empty() || self.any_tags.iter().any(has))
    }

    /// Its words, each once.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for text in clip(self.text, MAX_QUERY_BYTES).split_whitespace() {
            // The parts come last, so that the last word is one that may be unfinished.
            words.extend(joined_word(text));
            for_each_word(text, |word| words.push(word));
        }
        let mut seen = HashSet::new();
        words.retain(|word| seen.insert(word.clone()));
        words.truncate(MAX_QUERY_WORDS);
        words
    }
}

/// A tool that was found.
#[derive(Clone, Debug)]
pub struct Hit<'s> {
    /// The tool.
    pub tool: &'s Arc<Tool>,
    /// How well it fits; comparable within one search only.
    pub score: f64,
}

impl Snapshot {
    /// The tools that fit a query, best first; those that fit as well in the order of the configuration.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::Snapshot;
    /// use pegboard_runtime::search::Query;
    ///
    /// assert!(Snapshot::default().search(&Query::new("create issue")).is_empty());
    /// ```
    pub fn search(&self, query: &Query<'_>) -> Vec<Hit<'_>> {
        let n_most = query.n_most.min(MAX_HITS);
        let permitted = |tool: &&Arc<Tool>| query.permits(tool);
        if query.text.trim().is_empty() {
            let tools = self.tools().iter().filter(permitted).take(n_most);
            return tools.map(|tool| Hit { tool, score: 0.0 }).collect();
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
        found.into_iter().map(|(at, score)| Hit { tool: &self.tools()[at], score }).collect()
    }
}

/// Which words are in which tools.
#[derive(Debug)]
pub(crate) struct Index {
    /// Sorted by word.
    terms: Vec<(String, Vec<Posting>)>,
    n_tools: usize,
}

/// That a word is in a tool.
#[derive(Clone, Copy, Debug)]
struct Posting {
    /// The position of the tool.
    tool: u32,
    /// How much of the tool the word makes up.
    weight: f32,
}

/// What counts how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Name,
    Title,
    Tags,
    Server,
    Parameters,
    Description,
}

impl Field {
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

/// The words of one tool, with the fields they are in.
#[derive(Default)]
struct Document {
    words: Vec<(u32, Field)>,
    lengths: [u16; Field::COUNT],
}

impl Index {
    pub(crate) fn of(tools: &[Arc<Tool>]) -> Self {
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let documents: Vec<Document> = tools.iter().map(|tool| Document::of(tool, &mut numbers)).collect();
        let averages = average_lengths(&documents);
        let mut postings: Vec<Vec<Posting>> = vec![Vec::new(); numbers.len()];
        for (tool, mut document) in (0..).zip(documents) {
            document.words.sort_unstable();
            for same in document.words.chunk_by(|a, b| a.0 == b.0) {
                let share = |field: Field| {
                    let length = f32::from(document.lengths[field as usize]) / averages[field as usize];
                    field.weight() / (1.0 - B + B * length)
                };
                let weight = same.iter().map(|(_, field)| share(*field)).sum();
                postings[same[0].0 as usize].push(Posting { tool, weight });
            }
        }
        let mut terms: Vec<(String, Vec<Posting>)> = numbers
            .into_iter()
            .map(|(word, number)| (word, std::mem::take(&mut postings[number as usize])))
            .collect();
        terms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Self { terms, n_tools: tools.len() }
    }

    /// Every tool that has one of the words, with its score. The last word may be the beginning of one.
    fn scores(&self, words: &[String]) -> HashMap<usize, f64> {
        let mut scores: HashMap<usize, f64> = HashMap::new();
        for (n_left, word) in (0..words.len()).rev().zip(words) {
            let mut best: HashMap<u32, f64> = HashMap::new();
            let start = self.terms.partition_point(|(term, _)| term < word);
            let may_end_otherwise = n_left == 0 && word.len() >= MIN_PREFIX_BYTES;
            let n_endings = if may_end_otherwise { MAX_ENDINGS } else { 1 };
            for (term, postings) in self.terms[start..].iter().take(n_endings) {
                let share = match term.strip_prefix(word.as_str()) {
                    Some("") => 1.0,
                    Some(_) if may_end_otherwise => PREFIX_SHARE,
                    Some(_) | None => break,
                };
                let rarity = self.rarity(postings.len());
                for posting in postings {
                    let weight = f64::from(posting.weight);
                    let score = share * rarity * weight * (K1 + 1.0) / (weight + K1);
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

    /// How much a word says that so many tools have.
    fn rarity(&self, n_having: usize) -> f64 {
        let real = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let (having, others) = (real(n_having), real(self.n_tools.saturating_sub(n_having)));
        ((others + 0.5) / (having + 0.5)).ln_1p()
    }
}

impl Document {
    fn of(tool: &Tool, numbers: &mut HashMap<String, u32>) -> Self {
        let mut document = Self::default();
        let entry = &tool.entry;
        document.read_name(Field::Name, tool.id.name.as_str(), numbers);
        document.read_name(Field::Server, tool.id.server.as_str(), numbers);
        document.read(Field::Title, clip(entry.title().unwrap_or_default(), MAX_TITLE_BYTES), numbers);
        for tag in entry.tags().iter().take(MAX_TAGS) {
            document.read_name(Field::Tags, clip(tag, MAX_TITLE_BYTES), numbers);
        }
        let properties = entry.input_schema().as_json().get("properties").and_then(|all| all.as_object());
        for name in properties.into_iter().flat_map(serde_json::Map::keys).take(MAX_PARAMETERS) {
            document.read(Field::Parameters, clip(name, MAX_TITLE_BYTES), numbers);
        }
        document.read(Field::Description, clip(entry.description(), MAX_DESCRIPTION_BYTES), numbers);
        document
    }

    /// The words of a name, and the name as one.
    fn read_name(&mut self, field: Field, name: &str, numbers: &mut HashMap<String, u32>) {
        self.read(field, name, numbers);
        if let Some(whole) = joined_word(name) {
            self.add(field, whole, numbers);
        }
    }

    fn read(&mut self, field: Field, text: &str, numbers: &mut HashMap<String, u32>) {
        for_each_word(text, |word| self.add(field, word, numbers));
    }

    fn add(&mut self, field: Field, word: String, numbers: &mut HashMap<String, u32>) {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        self.words.push((*numbers.entry(word).or_insert(next), field));
        let length = &mut self.lengths[field as usize];
        *length = length.saturating_add(1);
    }
}

/// How long each field is among the tools that have it, and never 0.
fn average_lengths(documents: &[Document]) -> [f32; Field::COUNT] {
    let mut averages = [1.0; Field::COUNT];
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
