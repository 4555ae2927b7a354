//! Documents of one service: the root document and all documents it references.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use pegboard_core::fingerprint::Fingerprint;
use pegboard_core::settings::openapi::References;
use pegboard_files::RegularFile;
use reqwest::Url;
use serde_json::Value;

use super::yaml;

/// Maximum total size of the documents.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Maximum number of documents.
const MAX_DOCUMENTS: usize = 1_000;
/// Maximum length of a chain of references.
const MAX_HOPS: usize = 64;

/// Location of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DocumentLocation {
    /// A file.
    File(PathBuf),
    /// A URL.
    Remote(Url),
}

impl DocumentLocation {
    /// Parses a configured location, relative to `folder`.
    pub fn parse(spec: &str, folder: &Path) -> Result<Self, String> {
        if spec.starts_with("http://") || spec.starts_with("https://") {
            let url = Url::parse(spec).map_err(|error| format!("invalid URL '{spec}': {error}"))?;
            return Ok(Self::Remote(url));
        }
        Ok(Self::File(folder.join(spec)))
    }

    /// Resolves a reference against this location.
    fn join(&self, reference: &str) -> Result<Self, String> {
        if reference.starts_with("http://") || reference.starts_with("https://") {
            return Self::parse(reference, Path::new(""));
        }
        match self {
            Self::Remote(url) => url
                .join(reference)
                .map(Self::Remote)
                .map_err(|error| format!("invalid URL '{reference}': {error}")),
            Self::File(path) => {
                let reference = reference.strip_prefix("file://").unwrap_or(reference);
                let reference = percent_decoded(reference);
                Ok(Self::File(normalized(&path.parent().unwrap_or(Path::new("")).join(reference))))
            }
        }
    }

    /// Returns `true` if `other` is in the folder of this document or below.
    fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => {
                let folder = one.parent().unwrap_or(Path::new(""));
                // Symbolic links are resolved first. Missing files are reported on reading.
                match (canonical(folder), canonical(other)) {
                    (Ok(folder), Ok(other)) => other.starts_with(folder),
                    _ => normalized(other).starts_with(normalized(folder)),
                }
            }
            (Self::Remote(one), Self::Remote(other)) => {
                let folder = one.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                one.origin() == other.origin()
                    && other.path().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
            }
            (Self::File(_), Self::Remote(_)) | (Self::Remote(_), Self::File(_)) => false,
        }
    }
}

impl fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            // The URL may contain a password, and its query a token.
            Self::Remote(url) => write!(f, "{}{}", url.origin().ascii_serialization(), url.path()),
        }
    }
}

/// Canonicalizes a path; an empty one is the current folder.
fn canonical(path: &Path) -> std::io::Result<PathBuf> {
    if path.as_os_str().is_empty() { Path::new(".").canonicalize() } else { path.canonicalize() }
}

/// Removes `.` and `x/..`, so that each file has one path. Links are resolved on reading.
fn normalized(path: &Path) -> PathBuf {
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

/// OpenAPI version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OpenApiVersion {
    V2,
    V30,
    /// 3.1 and 3.2, with schemas that are JSON Schema.
    V31,
}

/// Function that fetches a document by URL.
pub(super) type FetchDocument<'f> = dyn Fn(Url) -> BoxFuture<'f, Result<Vec<u8>, String>> + Send + Sync + 'f;

/// All documents of a service; the first is the root.
pub(super) struct DocumentSet {
    documents: Vec<OpenApiDocument>,
    by_location: HashMap<DocumentLocation, Result<usize, String>>,
    pub(super) version: OpenApiVersion,
}

struct OpenApiDocument {
    location: DocumentLocation,
    root: Value,
    /// JSON pointers of anchors (`#name`).
    anchors: HashMap<String, String>,
}

/// Node of a document.
#[derive(Clone, Copy)]
pub(super) struct DocumentNode<'l> {
    /// Index of its document, for resolving references.
    pub(super) document: usize,
    pub(super) value: &'l Value,
}

/// Target of a reference.
pub(super) struct ReferenceTarget<'l> {
    pub(super) part: DocumentNode<'l>,
    /// Canonical JSON pointer.
    pub(super) pointer: String,
}

impl DocumentSet {
    /// Loads a document and everything it references.
    pub(super) async fn load(
        location: DocumentLocation,
        references: References,
        fetch: &FetchDocument<'_>,
    ) -> Result<Self, String> {
        let mut budget = MAX_BYTES;
        let root = read(&location, &mut budget, fetch).await?;
        let version = version(&root)?;
        let mut documents = Self { documents: Vec::new(), by_location: HashMap::new(), version };
        let mut wanted = documents.add(location.clone(), root);
        while let Some(next) = wanted.pop_front() {
            if documents.by_location.contains_key(&next) {
                continue;
            }
            let found = if documents.documents.len() >= MAX_DOCUMENTS {
                Err(format!("the service has more than {MAX_DOCUMENTS} documents"))
            } else if references == References::Near && !location.contains(&next) {
                Err(format!(
                    "{next} is outside the folder of the document; set references: anywhere to allow it"
                ))
            } else {
                read(&next, &mut budget, fetch).await
            };
            match found {
                Ok(root) => wanted.extend(documents.add(next, root)),
                // Reported by the operations that need it.
                Err(why) => drop(documents.by_location.insert(next, Err(why))),
            }
        }
        Ok(documents)
    }

    /// Creates a set from a parsed document.
    #[cfg(test)]
    pub(super) fn from_root(root: Value) -> Result<Self, String> {
        let version = version(&root)?;
        let mut documents = Self { documents: Vec::new(), by_location: HashMap::new(), version };
        documents.add(DocumentLocation::File("spec.json".into()), root);
        Ok(documents)
    }

    /// Adds a document and returns the documents it references.
    fn add(&mut self, location: DocumentLocation, root: Value) -> VecDeque<DocumentLocation> {
        let mut scan = ReferenceScan::default();
        scan.walk(&root, &mut String::new());
        let wanted = scan.files.iter().filter_map(|file| location.join(file).ok()).collect();
        self.by_location.insert(location.clone(), Ok(self.documents.len()));
        self.documents.push(OpenApiDocument { location, root, anchors: scan.anchors });
        wanted
    }

    /// Returns the root document.
    pub(super) fn root(&self) -> DocumentNode<'_> {
        DocumentNode { document: 0, value: &self.documents[0].root }
    }

    /// Returns the location of the root document.
    pub(super) fn location(&self) -> &DocumentLocation {
        &self.documents[0].location
    }

    /// Returns a hash of all documents.
    pub(super) fn fingerprint(&self) -> String {
        let mut fingerprint = Fingerprint::default();
        for document in &self.documents {
            fingerprint.add(document.root.to_string());
        }
        fingerprint.finish()
    }

    /// Returns the file name of a document without folder and extension.
    pub(super) fn stem(&self, document: usize) -> &str {
        let name = match &self.documents[document].location {
            DocumentLocation::File(path) => path.file_name().and_then(|name| name.to_str()),
            DocumentLocation::Remote(url) => {
                url.path_segments().and_then(|mut segments| segments.next_back())
            }
        };
        let stem = name.and_then(|name| name.split('.').next()).unwrap_or_default();
        if stem.is_empty() { "document" } else { stem }
    }

    /// Resolves one reference.
    pub(super) fn target(&self, from: usize, reference: &str) -> Result<ReferenceTarget<'_>, String> {
        let dangling = |why: &str| format!("cannot resolve reference '{}': {why}", clip(reference));
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if file.is_empty() {
            from
        } else {
            let location = self.documents[from].location.join(file)?;
            match self.by_location.get(&location) {
                Some(Ok(document)) => *document,
                Some(Err(why)) => return Err(dangling(why)),
                None => return Err(dangling("no such document")),
            }
        };
        let OpenApiDocument { root, anchors, .. } = &self.documents[document];
        let fragment = percent_decoded(fragment);
        let pointer = match anchors.get(&fragment) {
            Some(pointer) => pointer.clone(),
            None => fragment,
        };
        let value = root.pointer(&pointer).ok_or_else(|| dangling("no such node"))?;
        Ok(ReferenceTarget { part: DocumentNode { document, value }, pointer })
    }

    /// Follows references until a node that is not one.
    pub(super) fn follow<'l>(&'l self, part: DocumentNode<'l>) -> Result<DocumentNode<'l>, String> {
        let mut part = part;
        for _ in 0..MAX_HOPS {
            match part.value.get("$ref").and_then(Value::as_str) {
                Some(reference) => part = self.target(part.document, reference)?.part,
                None => return Ok(part),
            }
        }
        Err(format!("a chain of more than {MAX_HOPS} references"))
    }
}

impl<'l> DocumentNode<'l> {
    /// Returns a member.
    pub(super) fn get(self, name: &str) -> Option<Self> {
        self.value.get(name).map(|value| Self { value, ..self })
    }

    /// Returns a string member.
    pub(super) fn text(self, name: &str) -> Option<&'l str> {
        self.value.get(name).and_then(Value::as_str)
    }

    /// Returns `true` if a member is `true`.
    pub(super) fn is_true(self, name: &str) -> bool {
        self.value.get(name) == Some(&Value::Bool(true))
    }

    /// Returns the items of a list.
    pub(super) fn items(self) -> impl Iterator<Item = Self> + use<'l> {
        self.value.as_array().into_iter().flatten().map(move |value| Self { value, ..self })
    }

    /// Returns the members of an object.
    pub(super) fn members(self) -> impl Iterator<Item = (&'l str, Self)> + use<'l> {
        let members = self.value.as_object().into_iter().flatten();
        members.map(move |(name, value)| (name.as_str(), Self { value, ..self }))
    }
}

/// References and anchors of a document.
#[derive(Default)]
struct ReferenceScan {
    files: HashSet<String>,
    anchors: HashMap<String, String>,
}

impl ReferenceScan {
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

/// Reads a document within the remaining size budget.
async fn read(
    location: &DocumentLocation,
    budget: &mut usize,
    fetch: &FetchDocument<'_>,
) -> Result<Value, String> {
    let limit = *budget;
    let bytes = match location {
        DocumentLocation::Remote(url) => {
            fetch(url.clone()).await.map_err(|why| format!("{location}: {why}"))?
        }
        DocumentLocation::File(path) => {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || read_file(&path, limit)).await;
            let read = read
                .map_err(|error| error.to_string())
                .and_then(|read| read.map_err(|error| error.to_string()));
            read.map_err(|why| format!("cannot read {location}: {why}"))?
        }
    };
    *budget =
        limit.checked_sub(bytes.len()).ok_or_else(|| format!("cannot read {location}: {}", too_large()))?;
    parse(&bytes).map_err(|why| format!("{location} is neither valid JSON nor YAML: {why}"))
}

fn too_large() -> String {
    format!("exceeds the limit of {MAX_BYTES} bytes for all documents of a service")
}

fn read_file(path: &Path, limit: usize) -> std::io::Result<Vec<u8>> {
    let bytes = RegularFile::open(path)?.read(limit as u64)?;
    bytes.ok_or_else(|| std::io::Error::other(too_large()))
}

/// Parses JSON or YAML.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        match serde_json::from_slice(bytes) {
            Ok(value) => return Ok(value),
            // YAML flow style starts with a brace too, but no document of that size uses it.
            Err(error) if bytes.len() > 1 << 20 => return Err(error.to_string()),
            Err(error) => {
                let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
                return yaml::parse(text).map_err(|_| error.to_string());
            }
        }
    }
    yaml::parse(std::str::from_utf8(bytes).map_err(|error| error.to_string())?)
}

fn version(root: &Value) -> Result<OpenApiVersion, String> {
    let written = |name: &str| match root.get(name) {
        Some(Value::String(version)) => Some(version.clone()),
        Some(Value::Number(version)) => Some(version.to_string()),
        _ => None,
    };
    if let Some(version) = written("swagger") {
        return if version.starts_with('2') {
            Ok(OpenApiVersion::V2)
        } else {
            Err(unsupported_version(&version))
        };
    }
    match written("openapi") {
        Some(version) if version.starts_with("3.0") => Ok(OpenApiVersion::V30),
        Some(version) if version == "3" || version.starts_with("3.") => Ok(OpenApiVersion::V31),
        Some(version) => Err(unsupported_version(&version)),
        None => Err("not an OpenAPI document: it has neither 'openapi' nor 'swagger' at its root".to_owned()),
    }
}

fn unsupported_version(version: &str) -> String {
    format!("unsupported OpenAPI version {}: expected 2.0 or 3.0 to 3.2", clip(version))
}

/// Clips a text that may be long.
pub(super) fn clip(text: &str) -> &str {
    let end = text.char_indices().nth(200).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
