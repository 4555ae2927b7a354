//! A runtime and its profiles.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use parking_lot::Mutex;
use pegboard_core::id::ToolboxName;
use pegboard_core::owner::Owner;
use pegboard_core::settings::gateway::{Expose, GatewaySettings, Profile};
use pegboard_core::settings::messages::MessageLimits;
use pegboard_runtime::Runtime;
use pegboard_wire::server::{ResponseMemory, ServiceServer};

use crate::profile::{ActiveProfile, ProfileView};
use crate::profile_service::ProfileService;
use crate::server_subscribers::ServerSubscribers;

/// Profiles that exist without configuration.
const BUILT_IN: [Expose; 5] = [Expose::Meta, Expose::Flat, Expose::Agent, Expose::Hybrid, Expose::Auto];
/// Path segments reserved for transports; not usable as profile names.
const RESERVED: [&str; 3] = ["ws", "sse", "message"];

/// A runtime and the profiles that clients choose from. Clones share state.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::LocalProvider;
/// use pegboard_core::settings::gateway::GatewaySettings;
/// use pegboard_gateway::Gateway;
/// use pegboard_runtime::Runtime;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let runtime = Runtime::builder().toolbox("math", "Numbers").provide("sums", LocalProvider::new([double])).start().await?;
/// let gateway = Gateway::new(&runtime, &GatewaySettings::default()).unwrap();
/// assert!(gateway.server(Some("flat")).is_ok());
/// assert!(gateway.server(Some("nowhere")).is_err());
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Gateway(Arc<GatewayState>);

struct GatewayState {
    runtime: Runtime,
    /// Owner of what its clients leave behind: their principal.
    owner: Owner,
    /// Sessions of all principals by what they get from servers.
    subscribers: Arc<ServerSubscribers>,
    /// Gateways of the other principals.
    by_principal: Mutex<Vec<Gateway>>,
    default: Arc<ProfileService>,
    /// Services of the named profiles.
    named: ArcSwap<IndexMap<String, Arc<ProfileService>>>,
    message_limits: MessageLimits,
    /// Memory for the results of all principals and transports.
    response_memory: ResponseMemory,
}

/// The views of all profiles.
#[derive(Clone)]
pub struct ProfileViews {
    default: ProfileView,
    named: IndexMap<String, ProfileView>,
}

impl ProfileViews {
    /// Resolves the views of all profiles, given the configured toolboxes.
    pub fn from_settings(
        settings: &GatewaySettings,
        toolboxes: &BTreeSet<ToolboxName>,
    ) -> Result<Self, ProfileError> {
        let GatewaySettings { expose, pinned, transparent, corrections, profiles, listed, .. } = settings;
        let view = |name: &str, profile: &Profile| {
            ProfileView::resolve(profile, listed, toolboxes)
                .map_err(|toolbox| ProfileError::Toolbox { profile: name.to_owned(), toolbox })
        };
        let built_in = |expose: Expose| Profile {
            expose,
            pinned: pinned.clone(),
            transparent: *transparent,
            corrections: *corrections,
            toolboxes: None,
        };
        let default = view("default", &built_in(*expose))?;
        let mut named = IndexMap::new();
        for expose in BUILT_IN {
            let name = expose.as_str();
            named.insert(name.to_owned(), view(name, &built_in(expose))?);
        }
        for (name, profile) in profiles {
            if !is_valid_name(name) {
                return Err(ProfileError::Name { profile: name.clone() });
            }
            named.insert(name.clone(), view(name, profile)?);
        }
        Ok(Self { default, named })
    }

    /// Checks that a profile exists.
    pub fn check(&self, profile: &str) -> Result<(), ProfileError> {
        if self.named.contains_key(profile) {
            return Ok(());
        }
        let available = self.named.keys().cloned().collect();
        Err(ProfileError::Unknown { profile: profile.to_owned(), available })
    }
}

/// An invalid or unknown profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The name is not a valid path segment, or is reserved.
    #[error(
        "invalid profile name '{profile}': use letters, digits, '-' and '_', and none of: {}",
        RESERVED.join(", ")
    )]
    Name {
        /// Profile name.
        profile: String,
    },
    /// The profile names an unknown toolbox.
    #[error("profile '{profile}' refers to unknown toolbox '{toolbox}': configure or remove it")]
    Toolbox {
        /// Profile name.
        profile: String,
        /// Toolbox name.
        toolbox: ToolboxName,
    },
    /// The profile does not exist.
    #[error("unknown profile '{profile}'; available: {}", available.join(", "))]
    Unknown {
        /// Requested name.
        profile: String,
        /// Existing profiles.
        available: Vec<String>,
    },
}

impl Gateway {
    /// Creates the gateway of a runtime.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn new(runtime: &Runtime, settings: &GatewaySettings) -> Result<Self, ProfileError> {
        let toolboxes = runtime.toolboxes().into_iter().map(|toolbox| toolbox.name).collect();
        Ok(Self::with_views(
            runtime,
            Owner::local(),
            ProfileViews::from_settings(settings, &toolboxes)?,
            Arc::default(),
            (settings.message_limits, ResponseMemory::default()),
        ))
    }

    /// Returns the memory for results that clients have not read, which all transports share.
    pub fn response_memory(&self) -> &ResponseMemory {
        &self.0.response_memory
    }

    /// Returns the limits of messages from clients.
    pub(crate) fn message_limits(&self) -> MessageLimits {
        self.0.message_limits
    }

    /// Returns the gateway of one principal. Its sessions, suspended calls, tasks, stored outputs, records and log
    /// messages are invisible to other principals.
    #[must_use]
    pub fn for_principal(&self, principal: &str) -> Self {
        let owner = Owner::new(principal);
        self.0.runtime.add_principal(&owner);
        let mut by_principal = self.0.by_principal.lock();
        if let Some(known) = by_principal.iter().find(|other| other.0.owner == owner) {
            return known.clone();
        }
        let named = self.0.named.load();
        let named = named.iter().map(|(name, service)| (name.clone(), ProfileView::clone(&service.view())));
        let views =
            ProfileViews { default: ProfileView::clone(&self.0.default.view()), named: named.collect() };
        let subscribers = Arc::clone(&self.0.subscribers);
        let response_memory = self.0.response_memory.part(ResponseMemory::PRINCIPAL_BYTES);
        let limits = (self.0.message_limits, response_memory);
        let new = Self::with_views(&self.0.runtime, owner, views, subscribers, limits);
        by_principal.push(new.clone());
        new
    }

    fn with_views(
        runtime: &Runtime,
        owner: Owner,
        views: ProfileViews,
        subscribers: Arc<ServerSubscribers>,
        (message_limits, response_memory): (MessageLimits, ResponseMemory),
    ) -> Self {
        let ProfileViews { default, named } = views;
        let service = |name: &str, view| {
            let profile = Arc::new(ActiveProfile::new(runtime, &owner, name, view));
            ProfileService::new(profile, Arc::clone(&subscribers))
        };
        let default = service("default", default);
        let named: IndexMap<_, _> = named
            .into_iter()
            .map(|(name, view)| {
                let service = service(&name, view);
                (name, service)
            })
            .collect();
        Self(Arc::new(GatewayState {
            runtime: runtime.clone(),
            owner,
            subscribers,
            by_principal: Mutex::default(),
            default,
            named: ArcSwap::from_pointee(named),
            message_limits,
            response_memory,
        }))
    }

    fn by_principal(&self) -> Vec<Self> {
        self.0.by_principal.lock().clone()
    }

    /// Replaces the views without disconnecting clients. Services of existing profiles continue; a removed
    /// profile accepts no new clients.
    pub fn set_views(&self, views: ProfileViews) {
        for other in self.by_principal() {
            other.set_views(views.clone());
        }
        let ProfileViews { default, named } = views;
        self.0.default.replace_view(default);
        let previous = self.0.named.load_full();
        let services = named.into_iter().map(|(name, view)| {
            let service = if let Some(service) = previous.get(&name) {
                service.replace_view(view);
                Arc::clone(service)
            } else {
                let GatewayState { runtime, owner, subscribers, .. } = &*self.0;
                let profile = Arc::new(ActiveProfile::new(runtime, owner, &name, view));
                ProfileService::new(profile, Arc::clone(subscribers))
            };
            (name, service)
        });
        self.0.named.store(Arc::new(services.collect()));
    }

    /// Starts servers that were added after the first warm-up.
    pub fn warm_up_new_servers(&self) {
        self.by_principal().iter().for_each(Self::warm_up_new_servers);
        self.0.default.warm_up_new_servers();
        self.0.named.load().values().for_each(|service| service.warm_up_new_servers());
    }

    /// Returns the MCP server of a profile; without a name, of the default profile.
    ///
    /// If the profile lists tools directly, their servers are started now.
    pub fn server(&self, profile: Option<&str>) -> Result<ServiceServer, ProfileError> {
        let service = match profile {
            None => Arc::clone(&self.0.default),
            Some(name) => self.service(name).ok_or_else(|| self.unknown_profile(name))?,
        };
        service.start();
        Ok(ServiceServer::new(service as _).with_response_memory(self.0.response_memory.clone()))
    }

    /// Names of all profiles.
    pub fn profiles(&self) -> Vec<String> {
        self.0.named.load().keys().cloned().collect()
    }

    /// Returns the service of a profile.
    pub(crate) fn service(&self, profile: &str) -> Option<Arc<ProfileService>> {
        self.0.named.load().get(profile).cloned()
    }

    pub(crate) fn unknown_profile(&self, profile: &str) -> ProfileError {
        ProfileError::Unknown { profile: profile.to_owned(), available: self.profiles() }
    }
}

/// Returns `true` if a profile can have this name.
fn is_valid_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.bytes().all(is_plain) && !RESERVED.contains(&name)
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("profiles", &self.profiles()).finish_non_exhaustive()
    }
}
