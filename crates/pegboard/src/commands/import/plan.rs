//! What of that which others have becomes a part of our file, and under which name.

use pegboard::config::Problem;
use pegboard::config::edit::Way;
use pegboard::config::survey::{FoundPart, Survey, TELLING};
use pegboard::redact::is_secret_name;
use serde_json::{Map, Value};

use super::sources::{Source, Sources};
use crate::cli::Failure;
use crate::commands::own_file::{OwnFile, free_name};

/// What becomes of everything that was found.
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
}

/// One thing that was found.
pub(super) struct Item {
    /// Which source it is of.
    pub(super) source: usize,
    pub(super) part: FoundPart,
    pub(super) fate: Fate,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is put into the file under this name.
    New(String),
    /// It is what was found before under this name.
    Same(String),
    /// The file has it already, under this name.
    There(String),
    /// It is left where it is, for this reason.
    LeftOut(String),
}

impl Item {
    /// Puts it into the file if it is new, with its toolbox and what it names there.
    fn put(&self, file: &mut OwnFile, sources: &Sources) -> Result<(), Failure> {
        let Fate::New(name) = &self.fate else { return Ok(()) };
        let toolboxes = &sources.sources[self.source].survey.toolboxes;
        describe_toolbox(file, self.part.toolbox.as_deref(), toolboxes)?;
        put(file, &self.part, name)
    }
}

impl Plan {
    pub(super) fn new(present: Option<&Survey>, sources: &Sources) -> Self {
        let known: Vec<&FoundPart> = present.iter().flat_map(|survey| &survey.parts).collect();
        let mut plan = Self { items: Vec::new() };
        for (index, source) in sources.sources.iter().enumerate() {
            for part in &source.survey.parts {
                let fate = plan.fate(&known, source, part);
                plan.items.push(Item { source: index, part: part.clone(), fate });
            }
        }
        plan
    }

    fn fate(&mut self, known: &[&FoundPart], source: &Source, part: &FoundPart) -> Fate {
        if part.is_broken {
            return Fate::LeftOut(part.obstacle.clone().unwrap_or_default());
        }
        // What is off here, or is told less, does not stand for what works there.
        let stands_for = |there: &&&FoundPart| {
            is_same(there, part) && (!there.is_off || part.is_off) && knows_all_of(there, part)
        };
        if let Some(there) = known.iter().find(stands_for) {
            return Fate::There(there.name.clone());
        }
        let mut news = self.items.iter_mut().filter_map(|item| match &item.fate {
            Fate::New(name) if is_same(&item.part, part) => Some((name.clone(), &mut item.part)),
            _ => None,
        });
        if let Some((name, first)) = news.next() {
            complete(first, part);
            return Fate::Same(name);
        }
        let news = self.items.iter().filter_map(|item| match &item.fate {
            Fate::New(name) => Some((name.as_str(), &item.part)),
            _ => None,
        });
        let taken: Vec<(&str, &FoundPart)> =
            known.iter().map(|part| (part.name.as_str(), *part)).chain(news).collect();
        let is_free =
            |name: &str| !taken.iter().any(|(taken, other)| *taken == name && share_names(other, part));
        let of_client = source.client.map(|client| format!("{}-{}", part.name, client.name()));
        Fate::New(free_name(&part.name, of_client, is_free))
    }

    /// Puts what is new into the file. What would be no part of a configuration there is left out.
    pub(super) fn apply(&mut self, file: &mut OwnFile, sources: &Sources) -> Result<(), Failure> {
        let before = file.document.text();
        for item in &self.items {
            item.put(file, sources)?;
        }
        if file.new_problems()?.is_empty() {
            return Ok(());
        }
        // Something is wrong with one of them at least, so each is looked at by itself.
        file.say(before)?;
        for index in 0..self.items.len() {
            let before = file.document.text();
            self.items[index].put(file, sources)?;
            if let Some(problem) = file.new_problems()?.first() {
                let reason = format!("{}: {}", problem.path, problem.message);
                file.say(before)?;
                self.leave_out(index, &reason);
            }
        }
        Ok(())
    }

    /// Leaves one out that was new, and with it all that are the same: nothing in the file stands for them.
    fn leave_out(&mut self, index: usize, reason: &str) {
        let same = Fate::Same(match &self.items[index].fate {
            Fate::New(name) => name.clone(),
            Fate::Same(_) | Fate::There(_) | Fate::LeftOut(_) => return,
        });
        let (first, later) = self.items.split_at_mut(index + 1);
        first[index].fate = Fate::LeftOut(reason.to_owned());
        for item in
            later.iter_mut().filter(|item| item.fate == same && is_same(&first[index].part, &item.part))
        {
            item.fate = Fate::LeftOut(reason.to_owned());
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.items.iter().any(|item| matches!(item.fate, Fate::New(_)))
    }

    /// Where a key stands as it is, in what is new: `github (env.GITHUB_TOKEN)`.
    pub(super) fn bare_keys(&self) -> Vec<String> {
        let mut found = Vec::new();
        for item in &self.items {
            let Fate::New(name) = &item.fate else { continue };
            let hiding = ["url", "args", "spec"].into_iter();
            let hiding = hiding.filter(|key| item.part.value[*key] != item.part.masked[*key]);
            found.extend(hiding.map(|key| format!("{name} ({key})")));
            for section in ["env", "headers"] {
                let values = item.part.value[section].as_object();
                let is_bare = |(key, value): &(&String, &Value)| {
                    let text = value.as_str().unwrap_or_default();
                    let sounds_secret = is_secret_name(key) || key.to_uppercase().ends_with("KEY");
                    sounds_secret && !text.is_empty() && !text.contains("${")
                };
                let keys = values.into_iter().flatten().filter(is_bare);
                found.extend(keys.map(|(key, _)| format!("{name} ({section}.{key})")));
            }
        }
        found
    }

    /// What is worth saying about the files, beside what is said of each part.
    pub(super) fn remarks<'s>(&self, sources: &'s Sources) -> Vec<&'s Problem> {
        let of_parts: Vec<&Problem> = self.items.iter().flat_map(|item| &item.part.problems).collect();
        let all = sources.sources.iter().flat_map(|source| &source.survey.problems);
        all.filter(|problem| !of_parts.contains(problem)).collect()
    }
}

/// Whether two are one thing: the same program or address, used in the same way, and neither is told what the other is
/// not.
fn is_same(one: &FoundPart, other: &FoundPart) -> bool {
    let is_elsewhere = one.toolbox.is_some() && other.toolbox.is_some() && one.toolbox != other.toolbox;
    if one.section != other.section || is_elsewhere {
        return false;
    }
    match (one.section, &one.identity, &other.identity) {
        ("mcpServers" | "openapiSpecs" | "agents", Some(first), Some(second)) => {
            let is_alike = |key: &&str| one.value[*key] == other.value[*key];
            first == second
                && TELLING.iter().all(is_alike)
                && (knows_all_of(one, other) || knows_all_of(other, one))
        }
        _ => one.name == other.name && one.value == other.value,
    }
}

/// Whether one is told all that another is by `env` and `headers`.
fn knows_all_of(one: &FoundPart, other: &FoundPart) -> bool {
    let entries = |part: &FoundPart, key: &str| part.value[key].as_object().cloned().unwrap_or_default();
    ["env", "headers"].iter().all(|key| is_within(&entries(other, key), &entries(one, key)))
}

/// Learns from another description of the same thing what the first did not say.
fn complete(first: &mut FoundPart, other: &FoundPart) {
    let n_told = |part: &FoundPart| {
        let entries = |key: &str| part.value[key].as_object().map_or(0, Map::len);
        entries("env") + entries("headers")
    };
    if (first.is_off && !other.is_off) || n_told(other) > n_told(first) {
        first.value = other.value.clone();
        first.beside.clone_from(&other.beside);
        first.is_off = other.is_off;
        first.obstacle.clone_from(&other.obstacle);
    }
}

fn is_within(inner: &Map<String, Value>, outer: &Map<String, Value>) -> bool {
    inner.iter().all(|(key, value)| outer.get(key) == Some(value))
}

/// Whether no two of the kinds of two things may have one name.
fn share_names(one: &FoundPart, other: &FoundPart) -> bool {
    let kind = |part: &FoundPart| match part.section {
        "openapiSpecs" => "mcpServers",
        section => section,
    };
    one.toolbox == other.toolbox && kind(one) == kind(other)
}

/// Says of a toolbox that is new what another file says of it.
fn describe_toolbox(
    file: &mut OwnFile,
    toolbox: Option<&str>,
    toolboxes: &Map<String, Value>,
) -> Result<(), Failure> {
    let Some(toolbox) = toolbox else { return Ok(()) };
    let way = Way::to(["toolboxes", toolbox]);
    if file.document.get(&way).is_some() {
        return Ok(());
    }
    let own = toolboxes.get(toolbox).and_then(Value::as_object);
    own.into_iter().flatten().try_for_each(|(key, value)| file.set(&way.clone().key(key), value))
}

/// Puts a thing into the file, with what it names there.
fn put(file: &mut OwnFile, part: &FoundPart, name: &str) -> Result<(), Failure> {
    for beside in &part.beside {
        let way = Way::to([beside.section, &beside.name]);
        if file.document.get(&way).is_none() {
            file.set(&way, &beside.value)?;
        }
    }
    let toolbox = part.toolbox.as_deref().map(|toolbox| ["toolboxes", toolbox]);
    let way = Way::to(toolbox.into_iter().flatten().chain([part.section]));
    if part.section == "agents" {
        file.append(&way, &part.value)
    } else {
        file.set(&way.key(name), &part.value)
    }
}
