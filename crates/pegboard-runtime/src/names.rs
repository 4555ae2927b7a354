//! The names that models and clients see, printed from ids and looked up whole.
//!
//! A flat name is `{server}__{tool}`, with the toolbox before it where two toolboxes have a server of that name. It has
//! only characters that every model's interface takes, and is cut to a limit around a tag of its hash. Two tools that
//! come out the same are told apart by `_2`, `_3` and so on, by their place in the configuration and not by who came
//! first.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use pegboard_core::id::{ServerName, ToolId, ToolboxName};
use sha2::{Digest, Sha256};

/// How long an exposed name may be if nobody says otherwise.
pub const DEFAULT_LIMIT: usize = 64;

/// What stands between the parts of a flat name.
const SEPARATOR: &str = "__";
/// How long the tag of a name that was cut is.
const TAG_CHARS: usize = 8;
/// What a name without a usable character becomes.
const NAMELESS: &str = "tool_call";

/// A name with only letters, digits, `_` and `-`, beginning with a letter or digit.
///
/// What models leave behind of their own markup is dropped, and everything else that cannot be is replaced.
///
/// ```
/// use pegboard_runtime::names::sanitised;
///
/// assert_eq!(sanitised("<|channel|>github__search"), "github__search");
/// assert_eq!(sanitised("foo.bar baz!"), "foo_bar_baz");
/// assert_eq!(sanitised(""), "tool_call");
/// ```
pub fn sanitised(name: &str) -> String {
    usable(name).unwrap_or_else(|| NAMELESS.to_owned())
}

/// The same; `None` if there is no character that could be used.
pub(crate) fn usable(name: &str) -> Option<String> {
    let mut clean = String::with_capacity(name.len());
    let mut has_gap = false;
    for character in without_markup(name).trim().chars() {
        if !(character.is_ascii_alphanumeric() || matches!(character, '_' | '-')) {
            has_gap = true;
            continue;
        }
        if std::mem::take(&mut has_gap) && !clean.ends_with('_') {
            clean.push('_');
        }
        clean.push(character);
    }
    let usable = clean.trim_start_matches(|first: char| !first.is_ascii_alphanumeric());
    match usable.len() {
        0 => None,
        n_bytes if n_bytes == clean.len() => Some(clean),
        _ => Some(usable.to_owned()),
    }
}

/// The text without every `<|…|>` in it.
fn without_markup(text: &str) -> Cow<'_, str> {
    if !text.contains("<|") {
        return text.into();
    }
    let mut rest = text;
    let mut kept = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once("<|") {
        let Some((_, after)) = after.split_once("|>") else { break };
        kept.push_str(before);
        rest = after;
    }
    kept.push_str(rest);
    kept.into()
}

/// The flat names of tools that are given in the order of the configuration, one for each.
///
/// ```
/// use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
/// use pegboard_runtime::names::{DEFAULT_LIMIT, flat_names};
///
/// let id = |server: &str, name: &str| ToolId {
///     toolbox: ToolboxName::new("dev").unwrap(),
///     server: ServerName::new(server).unwrap(),
///     name: ToolName::new(name).unwrap(),
/// };
/// let names = flat_names(&[id("github", "search.code"), id("github", "search code")], DEFAULT_LIMIT);
/// assert_eq!(names, ["github__search_code", "github__search_code_2"]);
/// ```
pub fn flat_names(ids: &[ToolId], limit: usize) -> Vec<String> {
    let labels = labels(ids.iter().map(|id| (&id.toolbox, &id.server)));
    let given = flat_names_under(labels.iter().map(String::as_str).zip(ids), limit);
    given.into_iter().map(|given| given.name).collect()
}

/// The `agent_mode` names of tools that are given in the order of the configuration: `{server}_{tool}`.
pub fn agent_mode_names(ids: &[ToolId], limit: usize) -> Vec<String> {
    agent_mode_names_of(ids.iter(), limit).into_iter().map(|given| given.name).collect()
}

/// What servers are called as agents, given in the order of the configuration: by their own names, with the toolbox
/// before it where two toolboxes have a server of that name. Names that are `taken` are given to none.
///
/// ```
/// use pegboard_core::id::{ServerName, ToolboxName};
/// use pegboard_runtime::names::{DEFAULT_LIMIT, agent_names};
///
/// let [dev, prod] = ["dev", "prod"].map(|name| ToolboxName::new(name).unwrap());
/// let [files, batch] = ["files", "batch"].map(|name| ServerName::new(name).unwrap());
/// let servers = [(&dev, &files), (&dev, &batch), (&prod, &files)];
/// let names = agent_names(servers.into_iter(), &["batch"], DEFAULT_LIMIT);
/// assert_eq!(names, ["dev__files", "batch_2", "prod__files"]);
/// ```
pub fn agent_names<'n>(
    servers: impl Iterator<Item = (&'n ToolboxName, &'n ServerName)> + Clone,
    taken: &[&str],
    limit: usize,
) -> Vec<String> {
    let labels = labels(servers);
    let wanted = labels.iter().map(|label| fitted("", &sanitised(label), limit));
    let given = told_apart(taken.iter().map(ToString::to_string).chain(wanted), limit);
    given.into_iter().skip(taken.len()).map(|given| given.name).collect()
}

/// What people call something of this name: its words, each with a capital.
///
/// ```
/// use pegboard_runtime::names::display_name;
///
/// assert_eq!(display_name("readContent"), "Read Content");
/// assert_eq!(display_name("search.code_in-URLs"), "Search Code In URLs");
/// assert_eq!(display_name(""), "Tool");
/// ```
pub fn display_name(name: &str) -> String {
    let mut display = String::with_capacity(name.len() + 4);
    let mut before = None;
    for letter in name.chars() {
        if letter.is_alphanumeric() {
            let is_first = before.is_none();
            if !display.is_empty()
                && (is_first || letter.is_uppercase() && before.is_some_and(char::is_lowercase))
            {
                display.push(' ');
            }
            if is_first { display.extend(letter.to_uppercase()) } else { display.push(letter) }
        }
        before = Some(letter).filter(|letter| letter.is_alphanumeric());
    }
    if display.is_empty() { "Tool".to_owned() } else { display }
}

/// A name, and the one that was wanted if that was taken.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) wanted: Option<String>,
}

/// How each server is called in flat names: with its toolbox where two toolboxes have a server of that name.
pub(crate) fn labels<'n>(
    servers: impl Iterator<Item = (&'n ToolboxName, &'n ServerName)> + Clone,
) -> Vec<String> {
    let mut first_toolbox: HashMap<&ServerName, &ToolboxName> = HashMap::new();
    let shared: HashSet<&ServerName> = servers
        .clone()
        .filter(|&(toolbox, server)| *first_toolbox.entry(server).or_insert(toolbox) != toolbox)
        .map(|(_, server)| server)
        .collect();
    let label = |(toolbox, server): (&ToolboxName, &ServerName)| {
        if shared.contains(server) {
            format!("{}{SEPARATOR}{server}", sanitised(toolbox.as_str()))
        } else {
            server.to_string()
        }
    };
    servers.map(label).collect()
}

/// The flat names of tools under the labels of their servers.
pub(crate) fn flat_names_under<'n>(
    tools: impl Iterator<Item = (&'n str, &'n ToolId)>,
    limit: usize,
) -> Vec<Given> {
    let wanted =
        tools.map(|(label, id)| fitted(&format!("{label}{SEPARATOR}"), &sanitised(id.name.as_str()), limit));
    told_apart(wanted, limit)
}

/// The `agent_mode` names of tools.
pub(crate) fn agent_mode_names_of<'n>(ids: impl Iterator<Item = &'n ToolId>, limit: usize) -> Vec<Given> {
    let wanted = ids.map(|id| fitted(&format!("{}_", id.server), &sanitised(id.name.as_str()), limit));
    told_apart(wanted, limit)
}

/// `head` and `tail` together, or as much of both as fits around a tag of the whole.
fn fitted(head: &str, tail: &str, limit: usize) -> String {
    let whole = format!("{head}{tail}");
    if whole.len() <= limit {
        return whole;
    }
    let tag = tag(&whole);
    let room = limit.saturating_sub(TAG_CHARS + 1);
    // The server says where a tool comes from, and the end of a name says more than its beginning.
    let head: String = head.chars().take(room.saturating_sub(1)).collect();
    let tail_room = room - head.len();
    let tail = &tail[tail.len() - tail_room.min(tail.len())..];
    format!("{head}{tag}_{tail}").chars().take(limit).collect()
}

/// Eight characters that stand for a text.
fn tag(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(TAG_CHARS).map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// The wanted names, with a number on each that is taken by one before it.
fn told_apart(wanted: impl Iterator<Item = String>, limit: usize) -> Vec<Given> {
    let wanted: Vec<String> = wanted.collect();
    // Who is alone with a name keeps it, even if a number would make another come out the same.
    let all: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    if all.len() == wanted.len() {
        return wanted.into_iter().map(|name| Given { name, wanted: None }).collect();
    }
    let mut next_number: HashMap<&str, usize> = HashMap::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(wanted.len());
    for name in &wanted {
        let Some(number) = next_number.get_mut(name.as_str()) else {
            next_number.insert(name, 2);
            names.push(Given { name: name.clone(), wanted: None });
            continue;
        };
        let numbered = loop {
            let suffix = format!("_{number}");
            *number += 1;
            let base: String = name.chars().take(limit.saturating_sub(suffix.len())).collect();
            let numbered = base + &suffix;
            if !all.contains(numbered.as_str()) && taken.insert(numbered.clone()) {
                break numbered;
            }
        };
        names.push(Given { name: numbered, wanted: Some(name.clone()) });
    }
    names
}

/// The names nearest to one that is not there, best first, none that is far.
///
/// ```
/// use pegboard_runtime::names::nearest;
///
/// assert_eq!(nearest("read_fil", ["write_file", "read_file", "list"], 3), ["read_file", "write_file"]);
/// ```
pub fn nearest<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>, n_most: usize) -> Vec<&'n str> {
    let lower = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((likeness(&lower, candidate)?, candidate)))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(n_most).map(|(_, candidate)| candidate).collect()
}

/// How alike a name in lower case and another are, from 0 to 1; `None` if too little to be worth a mention.
pub(crate) fn likeness(lower: &str, candidate: &str) -> Option<f64> {
    const ENOUGH: f64 = 0.5;
    let likeness = strsim::normalized_damerau_levenshtein(lower, &candidate.to_lowercase());
    (likeness >= ENOUGH).then_some(likeness)
}
