//! Methods and notifications that the protocol does not define, and the servers that have them.

use pegboard_core::provider::{ToolKind, custom_features};
use pegboard_json::RawJson;
use pegboard_runtime::requests::ServerId;
use pegboard_wire::{RpcError, code};

use crate::profile::ActiveProfile;

/// Field of `_meta` with which a client names the server of a method.
const SERVER_KEY: &str = "pegboard/server";

/// Notifications of clients that the protocol defines.
const CLIENT_NOTIFICATIONS: [&str; 5] = [
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
    "notifications/tasks/status",
];

/// An MCP server that may have features which the protocol does not define.
struct CustomServer {
    id: ServerId,
    label: String,
    /// Names of the features; `None` as long as they are not known.
    features: Option<Vec<String>>,
}

/// Returns `true` if the protocol defines a notification of clients.
pub(crate) fn is_standard_notification(method: &str) -> bool {
    CLIENT_NOTIFICATIONS.contains(&method)
}

/// Returns the server of a method that the protocol does not define, and the parameters for it: the server that `_meta`
/// names, or else the one with the label that begins the method, or else the only one with a feature of that name, or
/// else the only one with such features. As long as the features of another server are not known, it may be the one.
pub(crate) fn find_server(
    profile: &ActiveProfile,
    method: &str,
    params: &RawJson,
) -> Result<(ServerId, RawJson), RpcError> {
    let mut servers = custom_servers(profile);
    let meta = params.get("_meta");
    if let Some(named) = meta.as_ref().and_then(|meta| meta.get(SERVER_KEY)) {
        let label = named.text().unwrap_or_default();
        let server = servers.into_iter().find(|server| server.label == label).ok_or_else(|| {
            RpcError::invalid_params(format_args!(
                "_meta[\"{SERVER_KEY}\"] names no server with experimental features or extensions"
            ))
        })?;
        let meta = meta.unwrap_or_else(RawJson::empty_object).without(SERVER_KEY);
        return Ok((server.id, params.with("_meta", &meta)));
    }
    let name = method.strip_prefix("notifications/").unwrap_or(method);
    if let Some(owner) = owner(profile, name) {
        servers.retain(|server| server.label == owner);
    } else {
        if servers.iter().any(|server| server.has_feature_of(name)) {
            servers.retain(|server| server.features.is_none() || server.has_feature_of(name));
        }
        if servers.iter().all(|server| server.features.is_none()) {
            servers.clear();
        }
    }
    if servers.len() > 1 {
        let labels: Vec<&str> = servers.iter().map(|server| server.label.as_str()).collect();
        let message = format!(
            "Method not found: {method}. Several servers may have it; name one in _meta[\"{SERVER_KEY}\"]: {}",
            labels.join(", ")
        );
        return Err(RpcError::new(code::METHOD_NOT_FOUND, message));
    }
    let server = servers.pop().ok_or_else(|| RpcError::method_not_found(method))?;
    Ok((server.id, params.clone()))
}

/// Returns the label of the server that a method belongs to by its first segment.
fn owner(profile: &ActiveProfile, method: &str) -> Option<String> {
    let snapshot = profile.runtime.catalogue();
    let mut listings = snapshot.listings().filter(|(listing, _)| profile.has_toolbox(&listing.toolbox));
    let found = listings.find(|(_, label)| is_in_namespace(method, label));
    found.map(|(_, label)| label.to_owned())
}

/// Returns the servers that have such features, or may have them.
fn custom_servers(profile: &ActiveProfile) -> Vec<CustomServer> {
    let snapshot = profile.runtime.catalogue();
    let listings = snapshot
        .listings()
        .filter(|(listing, _)| listing.kind == ToolKind::Mcp && profile.has_toolbox(&listing.toolbox));
    let servers = listings.map(|(listing, label)| {
        let features =
            custom_features(listing.offer.experimental.as_ref(), listing.offer.extensions.as_ref());
        CustomServer {
            id: ServerId { toolbox: listing.toolbox.clone(), server: listing.server.clone() },
            label: label.to_owned(),
            features: (listing.is_known || !features.is_empty()).then_some(features),
        }
    });
    servers.filter(|server| server.features.as_ref().is_none_or(|features| !features.is_empty())).collect()
}

impl CustomServer {
    /// Returns `true` if a feature has the name of the method, or of the namespace that the method is in.
    fn has_feature_of(&self, method: &str) -> bool {
        self.features.iter().flatten().any(|feature| is_in_namespace(method, feature))
    }
}

/// Returns `true` if a method has this name, or is in the namespace of this name.
fn is_in_namespace(method: &str, name: &str) -> bool {
    method.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}
