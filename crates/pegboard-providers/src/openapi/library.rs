//! The documents of one service: the one that was named, and all that it refers to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::{self, Write};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use pegboard_core::settings::openapi::References;
use reqwest::Url;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::yaml;

/// How large all documents of a service may be together.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;
/// How many documents a service may have.
const MAX_DOCUMENTS: usize = 1_000;
/// How many references may lead to one another.
const MAX_HOPS: usize = 64;

/// Where a document is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// An address.
    Web(Url),
}

impl Location {
    /// The location that a person means, seen from `folder`.
    pub fn of(spec: &str, folder: &Path) -> Result<Self, String> {
        if spec.starts_with("http://") || spec.starts_with("https://") {
            let url = Url::parse(spec).map_err(|error| format!("'{spec}' is no address: {error}"))?;
            return Ok(Self::Web(url));
        }
        Ok(Self::File(folder.join(spec)))
    }

    /// The location that a reference names, seen from here.
    fn join(&self, reference: &str) -> Result<Self, String> {
        if reference.starts_with("http://") || reference.starts_with("https://") {
            return Self::of(reference, Path::new(""));
        }
        match self {
            Self::Web(url) => url
                .join(reference)
                .map(Self::Web)
                .map_err(|error| format!("'{reference}' is no address: {error}")),
            Self::File(path) => {
                let reference = reference.strip_prefix("file://").unwrap_or(reference);
                let reference = percent_decoded(reference);
                Ok(Self::File(plain(&path.parent().unwrap_or(Path::new("")).join(reference))))
            }
        }
    }

    /// Whether `other` is in the folder of this or below.
    fn is_near(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => {
                let folder = one.parent().unwrap_or(Path::new(""));
                // What a link leads to counts, not where the link is. Of what is not there, somebody else tells.
                match (real(folder), real(other)) {
                    (Ok(folder), Ok(other)) => other.starts_with(folder),
                    _ => plain(other).starts_with(plain(folder)),
                }
            }
            (Self::Web(one), Self::Web(other)) => {
                let folder = one.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                one.origin() == other.origin()
                    && other.path().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
            }
            (Self::File(_), Self::Web(_)) | (Self::Web(_), Self::File(_)) => false,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            // A password may stand in an address, and a token behind its path.
            Self::Web(url) => write!(f, "{}{}", url.origin().ascii_serialization(), url.path()),
        }
    }
}

/// An empty folder is this one.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    if path.as_os_str().is_empty() { Path::new(".").canonicalize() } else { path.canonicalize() }
}

/// A path without `.` and `x/..`, so that the same file has one path. Links are followed when it is read.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir
                if matches!(plain.components().next_back(), Some(std::path::Component::Normal(_))) =>
            {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Which version of OpenAPI a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V2,
    V30,
    /// 3.1 and 3.2, whose schemas are JSON Schema.
    V31,
}

/// Somebody who brings what is at an address.
pub(super) type Fetch<'f> = dyn Fn(Url) -> BoxFuture<'f, Result<Vec<u8>, String>> + Send + Sync + 'f;

/// All documents of a service. The first is the one that was named.
pub(super) struct Library {
    documents: Vec<Document>,
    places: HashMap<Location, Result<usize, String>>,
    pub(super) version: Version,
}

struct Document {
    location: Location,
    root: Value,
    /// Where the names that `#name` uses lead, as JSON pointers.
    anchors: HashMap<String, String>,
}

/// Something in a document.
#[derive(Clone, Copy)]
pub(super) struct Part<'l> {
    /// Which document it is in, so that references in it can be followed.
    pub(super) document: usize,
    pub(super) value: &'l Value,
}

/// Where a reference leads.
pub(super) struct Target<'l> {
    pub(super) part: Part<'l>,
    /// The JSON pointer, as the one name of the place.
    pub(super) pointer: String,
}

impl Library {
    /// Reads a document and everything that it refers to.
    pub(super) async fn load(
        location: Location,
        references: References,
        fetch: &Fetch<'_>,
    ) -> Result<Self, String> {
        let mut budget = MAX_BYTES;
        let root = read(&location, &mut budget, fetch).await?;
        let version = version(&root)?;
        let mut library = Self { documents: Vec::new(), places: HashMap::new(), version };
        let mut wanted = library.add(location.clone(), root);
        while let Some(next) = wanted.pop_front() {
            if library.places.contains_key(&next) {
                continue;
            }
            let found = if library.documents.len() >= MAX_DOCUMENTS {
                Err(format!("the service has more than {MAX_DOCUMENTS} documents"))
            } else if references == References::Near && !location.is_near(&next) {
                Err(format!(
                    "{next} is not in the folder of the document; write references: anywhere if that is meant"
                ))
            } else {
                read(&next, &mut budget, fetch).await
            };
            match found {
                Ok(root) => wanted.extend(library.add(next, root)),
                // It is a problem of those who need it.
                Err(why) => drop(library.places.insert(next, Err(why))),
            }
        }
        Ok(library)
    }

    /// A library of one document that is there already.
    #[cfg(test)]
    pub(super) fn of(root: Value) -> Result<Self, String> {
        let version = version(&root)?;
        let mut library = Self { documents: Vec::new(), places: HashMap::new(), version };
        library.add(Location::File("spec.json".into()), root);
        Ok(library)
    }

    /// Adds a document, and says what it refers to.
    fn add(&mut self, location: Location, root: Value) -> VecDeque<Location> {
        let mut survey = Survey::default();
        survey.walk(&root, &mut String::new());
        let wanted = survey.files.iter().filter_map(|file| location.join(file).ok()).collect();
        self.places.insert(location.clone(), Ok(self.documents.len()));
        self.documents.push(Document { location, root, anchors: survey.anchors });
        wanted
    }

    /// The document that was named.
    pub(super) fn root(&self) -> Part<'_> {
        Part { document: 0, value: &self.documents[0].root }
    }

    /// Where the document is that was named.
    pub(super) fn location(&self) -> &Location {
        &self.documents[0].location
    }

    /// Tells all documents from all others.
    pub(super) fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        for document in &self.documents {
            digest.update(document.root.to_string());
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }

    /// What a document is called, without its folder and ending.
    pub(super) fn stem(&self, document: usize) -> &str {
        let name = match &self.documents[document].location {
            Location::File(path) => path.file_name().and_then(|name| name.to_str()),
            Location::Web(url) => url.path_segments().and_then(|mut segments| segments.next_back()),
        };
        let stem = name.and_then(|name| name.split('.').next()).unwrap_or_default();
        if stem.is_empty() { "document" } else { stem }
    }

    /// Where a reference leads, in one step.
    pub(super) fn target(&self, from: usize, reference: &str) -> Result<Target<'_>, String> {
        let dangling = |why: &str| format!("the reference '{}' leads nowhere: {why}", clip(reference));
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if file.is_empty() {
            from
        } else {
            let location = self.documents[from].location.join(file)?;
            match self.places.get(&location) {
                Some(Ok(document)) => *document,
                Some(Err(why)) => return Err(dangling(why)),
                None => return Err(dangling("it names no document")),
            }
        };
        let Document { root, anchors, .. } = &self.documents[document];
        let fragment = percent_decoded(fragment);
        let pointer = match anchors.get(&fragment) {
            Some(pointer) => pointer.clone(),
            None => fragment,
        };
        let value = root.pointer(&pointer).ok_or_else(|| dangling("there is nothing at that place"))?;
        Ok(Target { part: Part { document, value }, pointer })
    }

    /// The part itself, or what its references lead to in the end.
    pub(super) fn follow<'l>(&'l self, part: Part<'l>) -> Result<Part<'l>, String> {
        let mut part = part;
        for _ in 0..MAX_HOPS {
            match part.value.get("$ref").and_then(Value::as_str) {
                Some(reference) => part = self.target(part.document, reference)?.part,
                None => return Ok(part),
            }
        }
        Err(format!("more than {MAX_HOPS} references lead to one another"))
    }
}

impl<'l> Part<'l> {
    /// What is inside, under this name.
    pub(super) fn get(self, name: &str) -> Option<Self> {
        self.value.get(name).map(|value| Self { value, ..self })
    }

    /// The text inside, under this name.
    pub(super) fn text(self, name: &str) -> Option<&'l str> {
        self.value.get(name).and_then(Value::as_str)
    }

    /// Whether what is inside under this name says yes.
    pub(super) fn says(self, name: &str) -> bool {
        self.value.get(name) == Some(&Value::Bool(true))
    }

    /// What is in a list.
    pub(super) fn items(self) -> impl Iterator<Item = Self> + use<'l> {
        self.value.as_array().into_iter().flatten().map(move |value| Self { value, ..self })
    }

    /// What is in an object, with its name.
    pub(super) fn members(self) -> impl Iterator<Item = (&'l str, Self)> + use<'l> {
        let members = self.value.as_object().into_iter().flatten();
        members.map(move |(name, value)| (name.as_str(), Self { value, ..self }))
    }
}

/// What a document refers to, and what it names.
#[derive(Default)]
struct Survey {
    files: HashSet<String>,
    anchors: HashMap<String, String>,
}

impl Survey {
    fn walk(&mut self, value: &Value, pointer: &mut String) {
        let length = pointer.len();
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let file = reference.split('#').next().unwrap_or_default();
                    if !file.is_empty() {
                        self.files.insert(file.to_owned());
                    }
                }
                if let Some(Value::String(name)) = members.get("$anchor") {
                    self.anchors.insert(name.clone(), pointer.clone());
                }
                for (name, member) in members {
                    pointer.push('/');
                    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    self.walk(member, pointer);
                    pointer.truncate(length);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let _ = write!(pointer, "/{at}");
                    self.walk(item, pointer);
                    pointer.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Reads one document, as long as there is room for it.
async fn read(location: &Location, budget: &mut usize, fetch: &Fetch<'_>) -> Result<Value, String> {
    let limit = *budget;
    let bytes = match location {
        Location::Web(url) => fetch(url.clone()).await.map_err(|why| format!("{location}: {why}"))?,
        Location::File(path) => {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || read_file(&path, limit)).await;
            let read = read
                .map_err(|error| error.to_string())
                .and_then(|read| read.map_err(|error| error.to_string()));
            read.map_err(|why| format!("{location} cannot be read: {why}"))?
        }
    };
    *budget = limit.checked_sub(bytes.len()).ok_or_else(|| {
        format!(
            "the documents of a service may have {MAX_BYTES} bytes together, and {location} is beyond that"
        )
    })?;
    parse(&bytes).map_err(|why| format!("{location} is no JSON or YAML: {why}"))
}

fn read_file(path: &Path, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than there may be, so that too much is seen.
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads JSON, or YAML.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        match serde_json::from_slice(bytes) {
            Ok(value) => return Ok(value),
            // YAML may begin like that too; a document of that size is no such thing.
            Err(error) if bytes.len() > 1 << 20 => return Err(error.to_string()),
            Err(error) => {
                let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
                return yaml::parse(text).map_err(|_| error.to_string());
            }
        }
    }
    yaml::parse(std::str::from_utf8(bytes).map_err(|error| error.to_string())?)
}

fn version(root: &Value) -> Result<Version, String> {
    let written = |name: &str| match root.get(name) {
        Some(Value::String(version)) => Some(version.clone()),
        Some(Value::Number(version)) => Some(version.to_string()),
        _ => None,
    };
    if let Some(version) = written("swagger") {
        return if version.starts_with('2') { Ok(Version::V2) } else { Err(unknown(&version)) };
    }
    match written("openapi") {
        Some(version) if version.starts_with("3.0") => Ok(Version::V30),
        Some(version) if version == "3" || version.starts_with("3.") => Ok(Version::V31),
        Some(version) => Err(unknown(&version)),
        None => {
            Err("it is no OpenAPI document: it has neither 'openapi' nor 'swagger' at its root".to_owned())
        }
    }
}

fn unknown(version: &str) -> String {
    format!("it is written in OpenAPI {}; 2.0 and 3.0 to 3.2 can be read", clip(version))
}

/// The beginning of a text that may be long.
pub(super) fn clip(text: &str) -> &str {
    let end = text.char_indices().nth(200).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
