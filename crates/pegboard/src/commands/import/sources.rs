//! Where servers are brought from: the files of clients, and whatever somebody names.

use std::path::{Path, PathBuf};

use pegboard::config::clients::{Client, client_at, clients};
use pegboard::config::edit::{Document, Way};
use pegboard::config::survey::{Survey, survey_view};
use pegboard::config::{Around, ConfigurationError, Spec, View};
use serde_json::Value;

use crate::cli::Failure;
use crate::commands::client_file::servers;
use crate::commands::own_file::shown;
use crate::place;

/// All that was looked at.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) sources: Vec<Source>,
    /// Files of clients that could not be read.
    pub(super) unread: Vec<Unread>,
}

/// One file, or what else names servers.
pub(super) struct Source {
    /// The client that it is of, if it is a file of one.
    pub(super) client: Option<&'static Client>,
    pub(super) survey: Survey,
}

/// A file that could not be read.
pub(super) struct Unread {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

impl Source {
    /// What people call it.
    pub(super) fn label(&self) -> String {
        self.client.map_or_else(|| shown(&self.survey.path), |client| client.name().to_owned())
    }
}

impl Sources {
    /// The files of all clients that have servers. One that cannot be read leaves the others as they are.
    pub(super) fn all(around: &Around<'_>) -> Self {
        let mut all = Self::default();
        for client in clients() {
            let first = |places: Vec<PathBuf>| places.into_iter().find(|place| place.is_file());
            let of_user = first(client.user_places(around.environment, around.system));
            let of_project = first(client.project_places(around.folder));
            for path in of_user.into_iter().chain(of_project) {
                all.add_file(client, &path, around);
            }
        }
        all
    }

    /// What somebody names.
    pub(super) fn named(named: &[PathBuf], around: &Around<'_>) -> Result<Self, Failure> {
        let mut all = Self::default();
        for name in named {
            let spec = place::spec(name, around.folder)?;
            for survey in spec.survey(around)? {
                let client = match &spec {
                    Spec::Client { client, .. } => Some(*client),
                    _ => client_at(&survey.path),
                };
                all.sources.push(Source { client, survey });
            }
        }
        Ok(all)
    }

    fn add_file(&mut self, client: &'static Client, path: &Path, around: &Around<'_>) {
        // Some clients share a file.
        let is_known = self.sources.iter().any(|source| source.survey.path == path)
            || self.unread.iter().any(|unread| unread.path == path);
        if is_known {
            return;
        }
        match survey_client(client, path, around) {
            Ok(Some(survey)) => self.sources.push(Source { client: Some(client), survey }),
            Ok(None) => {}
            Err(error) => self.unread.push(Unread { path: path.to_owned(), why: error.to_string() }),
        }
    }
}

/// What a client's file names; nothing if it has other settings alone.
fn survey_client(
    client: &Client,
    path: &Path,
    around: &Around<'_>,
) -> Result<Option<Survey>, ConfigurationError> {
    let document = Document::read(path)?;
    let of_all = servers(client, &document);
    let ways = [Some(of_all), client.local_way(around.folder)];
    let has_some = |way: Vec<String>| match document.get(&Way::to(way.iter().map(String::as_str))) {
        Some(Value::Object(entries)) => !entries.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    };
    if !ways.into_iter().flatten().any(has_some) {
        return Ok(None);
    }
    let view = View {
        project: Some(around.folder.to_owned()),
        toolbox: around.toolbox.map(str::to_owned),
        only: None,
    };
    survey_view(path, &view, around.environment).map(Some)
}
