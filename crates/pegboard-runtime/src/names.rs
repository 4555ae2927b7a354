//! Exposed tool names, derived from ids and always looked up whole.
//!
//! A flat name is `{server}__{tool}`, prefixed with the toolbox where two toolboxes have a server of that
//! name. It consists of characters that every model API accepts, and is shortened to a limit around a hash
//! tag. Colliding names are numbered `_2`, `_3` and so on by their position in the configuration,
//! not by order of arrival.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use hmac_sha256::Hash as Sha256;
use pegboard_core::id::{ServerName, ToolId, ToolboxName};

/// Default maximum length of an exposed name.
pub const DEFAULT_LIMIT: usize = 64;

/// Separator between the parts of a flat name.
const SEPARATOR: &str = "__";
/// Length of the hash tag in a shortened name.
const HASH_TAG_CHARS: usize = 8;
/// Replacement for a name without a usable character.
const FALLBACK_NAME: &str = "tool_call";

/// Reduces a name to letters, digits, `_` and `-`, starting with a letter or digit.
///
/// Markup left behind by models (`<|…|>`) is removed; runs of other characters become `_`.
///
/// ```
/// use pegboard_runtime::names::sanitize;
///
/// assert_eq!(sanitize("<|channel|>github__search"), "github__search");
/// assert_eq!(sanitize("foo.bar baz!"), "foo_bar_baz");
/// assert_eq!(sanitize(""), "tool_call");
/// ```
pub fn sanitize(name: &str) -> String {
    try_sanitize(name).unwrap_or_else(|| FALLBACK_NAME.to_owned())
}

/// Like [`sanitize`]; `None` if no character is usable.
pub(crate) fn try_sanitize(name: &str) -> Option<String> {
    let mut clean = String::with_capacity(name.len());
    let mut has_gap = false;
    for character in strip_markup(name).trim().chars() {
        if !(character.is_ascii_alphanumeric() || matches!(character, '_' | '-')) {
            has_gap = true;
            continue;
        }
        if std::mem::take(&mut has_gap) && !clean.ends_with('_') {
            clean.push('_');
        }
        clean.push(character);
    }
    let trimmed = clean.trim_start_matches(|first: char| !first.is_ascii_alphanumeric());
    match trimmed.len() {
        0 => None,
        n_bytes if n_bytes == clean.len() => Some(clean),
        _ => Some(trimmed.to_owned()),
    }
}

/// Removes every `<|…|>`.
fn strip_markup(text: &str) -> Cow<'_, str> {
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

/// Returns the flat names of tools given in configuration order.
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
    let labels = server_labels(ids.iter().map(|id| (&id.toolbox, &id.server)));
    let labels = labels.iter().map(String::as_str);
    let assigned = assign_flat_names(labels.zip(ids), limit, |_, _| true);
    assigned.into_iter().map(|assigned| assigned.name).collect()
}

/// Returns the names of servers as agents, given in configuration order: the server name, prefixed with the
/// toolbox where two toolboxes have a server of that name. Names in `taken` are not assigned.
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
    let labels = server_labels(servers);
    let desired = labels.iter().map(|label| fit_to_limit("", &sanitize(label), limit));
    let desired = taken.iter().map(ToString::to_string).chain(desired);
    let assigned = assign_unique(desired, limit, |_, numbered, _| numbered);
    assigned.into_iter().skip(taken.len()).map(|assigned| assigned.name).collect()
}

/// Returns a human-readable name: the words of the name, capitalized.
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

/// An assigned name, with the desired one if that was taken.
#[derive(Debug)]
pub(crate) struct AssignedName {
    pub(crate) name: String,
    pub(crate) desired: Option<String>,
}

/// Returns the prefix of each server in flat names: qualified by the toolbox where two toolboxes have a
/// server of that name. No two servers have the same prefix.
pub(crate) fn server_labels<'n>(
    servers: impl Iterator<Item = (&'n ToolboxName, &'n ServerName)> + Clone,
) -> Vec<String> {
    let mut first_toolbox: HashMap<&ServerName, &ToolboxName> = HashMap::new();
    let shared: HashSet<&ServerName> = servers
        .clone()
        .filter(|&(toolbox, server)| *first_toolbox.entry(server).or_insert(toolbox) != toolbox)
        .map(|(_, server)| server)
        .collect();
    // A qualified prefix may be the name of another server, or of another toolbox and server.
    let mut taken: HashMap<String, (&ToolboxName, &ServerName)> = servers
        .clone()
        .filter(|(_, server)| !shared.contains(server))
        .map(|(toolbox, server)| (server.to_string(), (toolbox, server)))
        .collect();
    let label = |(toolbox, server): (&'n ToolboxName, &'n ServerName)| {
        if !shared.contains(server) {
            return server.to_string();
        }
        let qualified = format!("{}{SEPARATOR}{server}", sanitize(toolbox.as_str()));
        let numbered = (2..).map(|number| format!("{qualified}_{number}"));
        let mut labels = std::iter::once(qualified.clone()).chain(numbered);
        let is_free = |label: &String| match taken.get(label) {
            None => true,
            Some(holder) => *holder == (toolbox, server),
        };
        let label = labels.find(is_free).expect("there is always another number");
        taken.insert(label.clone(), (toolbox, server));
        label
    };
    servers.map(label).collect()
}

/// Assigns flat names to tools, given with the prefixes of their servers. A name must satisfy `is_own`: a
/// text that begins with the prefix of another server is a name of that server.
pub(crate) fn assign_flat_names<'n>(
    tools: impl Iterator<Item = (&'n str, &'n ToolId)>,
    limit: usize,
    is_own: impl Fn(&str, &ToolId) -> bool,
) -> Vec<AssignedName> {
    let tools: Vec<(&str, &ToolId)> = tools.collect();
    let mut foreign = Vec::new();
    let desired: Vec<String> = tools
        .iter()
        .enumerate()
        .map(|(at, (label, id))| {
            let (head, tail) = (format!("{label}{SEPARATOR}"), sanitize(id.name.as_str()));
            let name = fit_to_limit(&head, &tail, limit);
            if is_own(&name, id) {
                return name;
            }
            foreign.push((at, name));
            tagged(&head, &tail, limit)
        })
        .collect();
    let mut assigned = assign_unique(desired.into_iter(), limit, |at, numbered, suffix| {
        own_numbered_name(tools[at], SEPARATOR, (numbered, suffix), limit, &is_own)
    });
    for (at, name) in foreign {
        assigned[at].desired = Some(name);
    }
    assigned
}

/// Assigns `agent_mode` names to tools, given with the prefixes of their servers and their flat names. A name
/// that does not satisfy `is_own` is replaced by the flat name.
pub(crate) fn assign_agent_mode_names<'n>(
    tools: impl Iterator<Item = (&'n str, &'n ToolId)>,
    flat_names: &[AssignedName],
    limit: usize,
    is_own: impl Fn(&str, &ToolId) -> bool,
) -> Vec<AssignedName> {
    let tools: Vec<(&str, &ToolId)> = tools.collect();
    let desired = tools.iter().zip(flat_names).map(|((label, id), flat)| {
        let name = fit_to_limit(&format!("{label}_"), &sanitize(id.name.as_str()), limit);
        if is_own(&name, id) { name } else { flat.name.clone() }
    });
    assign_unique(desired, limit, |at, numbered, suffix| {
        own_numbered_name(tools[at], "_", (numbered, suffix), limit, &is_own)
    })
}

/// Returns a numbered name of a tool, with a hash tag if the number makes it a name of another server.
fn own_numbered_name(
    (label, id): (&str, &ToolId),
    separator: &str,
    (numbered, suffix): (String, &str),
    limit: usize,
    is_own: impl Fn(&str, &ToolId) -> bool,
) -> String {
    if is_own(&numbered, id) {
        return numbered;
    }
    tagged(&format!("{label}{separator}"), &format!("{}{suffix}", sanitize(id.name.as_str())), limit)
}

/// Concatenates `head` and `tail`, shortening both around a hash tag if the result is too long.
fn fit_to_limit(head: &str, tail: &str, limit: usize) -> String {
    let whole = format!("{head}{tail}");
    if whole.len() <= limit {
        return whole;
    }
    tagged(head, tail, limit)
}

/// Concatenates `head` and `tail` around a hash tag, shortening both to the limit.
fn tagged(head: &str, tail: &str, limit: usize) -> String {
    let tag = hash_tag(&format!("{head}{tail}"));
    // The server tells where a tool comes from, and the end of a tool name is more specific than its
    // beginning.
    let head: String = head.chars().take(head_room(limit)).collect();
    let tail_room = limit.saturating_sub(HASH_TAG_CHARS + 1) - head.len();
    let tail = &tail[tail.len() - tail_room.min(tail.len())..];
    format!("{head}{tag}_{tail}").chars().take(limit).collect()
}

/// Maximum length of the head of a name with a hash tag.
fn head_room(limit: usize) -> usize {
    limit.saturating_sub(HASH_TAG_CHARS + 2)
}

/// Returns the beginning of the names with a prefix that is too long for them; `None` if it is not.
pub(crate) fn shortened_head(label: &str, limit: usize) -> Option<&str> {
    label.get(..head_room(limit))
}

/// Returns eight characters derived from the hash of a text.
fn hash_tag(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let hash = Sha256::hash(text.as_bytes());
    hash.iter().take(HASH_TAG_CHARS).map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// Numbers the names that are already taken. `adjust` gets the position of such a name, its numbered form and the suffix
/// with the number, and returns the form that is used.
fn assign_unique(
    desired: impl Iterator<Item = String>,
    limit: usize,
    adjust: impl Fn(usize, String, &str) -> String,
) -> Vec<AssignedName> {
    let desired: Vec<String> = desired.collect();
    // A unique name is kept, even if numbering another one would produce it.
    let all: HashSet<&str> = desired.iter().map(String::as_str).collect();
    if all.len() == desired.len() {
        return desired.into_iter().map(|name| AssignedName { name, desired: None }).collect();
    }
    let mut next_number: HashMap<&str, usize> = HashMap::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(desired.len());
    for (at, name) in desired.iter().enumerate() {
        let Some(number) = next_number.get_mut(name.as_str()) else {
            next_number.insert(name, 2);
            names.push(AssignedName { name: name.clone(), desired: None });
            continue;
        };
        let numbered = loop {
            let suffix = format!("_{number}");
            *number += 1;
            let base: String = name.chars().take(limit.saturating_sub(suffix.len())).collect();
            let numbered = adjust(at, base + &suffix, &suffix);
            if !all.contains(numbered.as_str()) && taken.insert(numbered.clone()) {
                break numbered;
            }
        };
        names.push(AssignedName { name: numbered, desired: Some(name.clone()) });
    }
    names
}
