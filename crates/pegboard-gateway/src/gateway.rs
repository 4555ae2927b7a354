//! A runtime, and the ways in which clients may see it.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::id::ToolboxName;
use pegboard_core::settings::gateway::{Expose, GatewaySettings, Profile};
use pegboard_runtime::Runtime;
use pegboard_wire::server::Server;

use crate::endpoint::Endpoint;
use crate::profile::Board;

/// The profiles that are there without being configured.
const BUILT_IN: [Expose; 5] = [Expose::Meta, Expose::Flat, Expose::Agent, Expose::Hybrid, Expose::Auto];
/// What stands beside every profile in a path, and so cannot be a profile.
const RESERVED: [&str; 3] = ["ws", "sse", "message"];

/// A runtime, and the ways in which clients may see it. Clones are the same gateway.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::Local;
/// use pegboard_core::settings::gateway::GatewaySettings;
/// use pegboard_gateway::Gateway;
/// use pegboard_runtime::Runtime;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let runtime = Runtime::builder().toolbox("math", "Numbers").provide("sums", Local::new([double])).start().await?;
/// let gateway = Gateway::new(&runtime, &GatewaySettings::default()).unwrap();
/// assert!(gateway.server(Some("flat")).is_ok());
/// assert!(gateway.server(Some("nowhere")).is_err());
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Gateway(Arc<Profiles>);

struct Profiles {
    default: Arc<Endpoint>,
    /// Those that clients may name.
    named: IndexMap<String, Arc<Endpoint>>,
}

/// Why there is no such view of the tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The name cannot be part of a path, or means something else there.
    #[error(
        "A profile cannot be called '{profile}'. Use letters, digits, '-' and '_', and none of: {}",
        RESERVED.join(", ")
    )]
    Name {
        /// The name.
        profile: String,
    },
    /// The profile names a toolbox that is not there.
    #[error(
        "Profile '{profile}' names the toolbox '{toolbox}', which is not configured. Take it out or configure it"
    )]
    Toolbox {
        /// The profile.
        profile: String,
        /// The toolbox.
        toolbox: ToolboxName,
    },
    /// There is no such profile.
    #[error("There is no profile '{profile}'. Profiles: {}", available.join(", "))]
    Unknown {
        /// What was asked for.
        profile: String,
        /// Those there are.
        available: Vec<String>,
    },
}

impl Gateway {
    /// The gateway to a runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(runtime: &Runtime, settings: &GatewaySettings) -> Result<Self, ProfileError> {
        let GatewaySettings { expose, pinned, transparent, profiles, listed } = settings;
        let endpoint = |name: &str, profile: &Profile| {
            let board = Board::new(runtime, name, profile, listed)
                .map_err(|toolbox| ProfileError::Toolbox { profile: name.to_owned(), toolbox })?;
            Ok(Endpoint::new(Arc::new(board)))
        };
        let usual = |expose: Expose| Profile {
            expose,
            pinned: pinned.clone(),
            transparent: *transparent,
            toolboxes: None,
        };
        let default = endpoint("default", &usual(*expose))?;
        let mut named = IndexMap::new();
        for expose in BUILT_IN {
            let name = expose.as_str();
            named.insert(name.to_owned(), endpoint(name, &usual(expose))?);
        }
        for (name, profile) in profiles {
            if !is_usable(name) {
                return Err(ProfileError::Name { profile: name.clone() });
            }
            named.insert(name.clone(), endpoint(name, profile)?);
        }
        Ok(Self(Arc::new(Profiles { default, named })))
    }

    /// One view of the tools, to be served; without a name the one that clients get who ask for none.
    ///
    /// Where a view lists tools by themselves, their servers are made ready now.
    pub fn server(&self, profile: Option<&str>) -> Result<Server, ProfileError> {
        let endpoint = match profile {
            None => &self.0.default,
            Some(name) => self.0.named.get(name).ok_or_else(|| self.unknown(name))?,
        };
        endpoint.start();
        Ok(Server::new(Arc::clone(endpoint) as _))
    }

    /// The names of the profiles there are.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.0.named.keys().map(String::as_str)
    }

    /// All views, to be served when somebody comes.
    pub(crate) fn named_servers(&self) -> impl Iterator<Item = (&str, Server)> {
        self.0.named.iter().map(|(name, endpoint)| (name.as_str(), Server::new(Arc::clone(endpoint) as _)))
    }

    pub(crate) fn unknown(&self, profile: &str) -> ProfileError {
        let available = self.profiles().map(str::to_owned).collect();
        ProfileError::Unknown { profile: profile.to_owned(), available }
    }
}

/// Whether a profile can have this name.
fn is_usable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.bytes().all(is_plain) && !RESERVED.contains(&name)
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("profiles", &self.0.named.keys()).finish_non_exhaustive()
    }
}
