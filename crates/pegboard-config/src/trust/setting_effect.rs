//! Effects of settings, which decide whether a project file needs consent for them.
//!
//! Every setting of the schema has an entry here; a test fails for one that does not. At run time a setting without
//! an entry needs consent.

use SettingEffect::{Location, NoEffect, Start, Use};

/// Effect of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingEffect {
    /// It says which program is started, or where requests go. Files that it refers to count, unlike those with
    /// secrets, which may change.
    Location,
    /// It changes what is started or sent.
    Start,
    /// It decides who can use what, by which names, and what is shared or recorded. A file may change the entries
    /// of another.
    Use,
    /// It changes nothing that needs consent, or it is a section with actions of its own.
    NoEffect,
}

/// Settings of servers, services and REST tools.
const ENTRY_SETTINGS: [(&str, SettingEffect); 63] = [
    ("aliases", Use),
    ("allowPrivateNetwork", Start),
    ("args", Location),
    ("baseUrl", Location),
    ("bodyTemplate", Start),
    ("cache", NoEffect),
    ("cacheScope", Use),
    ("command", Location),
    ("credentials", Start),
    ("cwd", Location),
    ("description", NoEffect),
    ("disabled", NoEffect),
    ("enabled", NoEffect),
    ("env", Start),
    ("envFile", Start),
    ("environment", Start),
    ("era", NoEffect),
    ("exclude", Use),
    ("firstStartTimeout", NoEffect),
    ("hasComplexQueryParams", Start),
    ("headers", Start),
    ("healthInterval", NoEffect),
    ("healthProbe", NoEffect),
    ("idleStop", NoEffect),
    ("include", Use),
    ("includeMethods", Use),
    ("instructions", NoEffect),
    ("maxBytes", NoEffect),
    ("messageLimits", NoEffect),
    ("method", Start),
    ("output", NoEffect),
    ("pagination", NoEffect),
    ("parametersSchema", Start),
    ("passEnv", Start),
    ("priority", NoEffect),
    ("queryParamNames", Start),
    ("queue", NoEffect),
    ("references", Start),
    ("rename", Use),
    ("requestTimeoutMs", NoEffect),
    ("retry", NoEffect),
    ("roots", Use),
    ("server", Start),
    ("serverVariables", Start),
    ("shared", Use),
    ("spec", Location),
    ("start", NoEffect),
    ("startTimeout", NoEffect),
    ("streaming", NoEffect),
    ("tagFilter", Use),
    ("tags", NoEffect),
    ("timeout", NoEffect),
    ("toolFilters", Use),
    ("toolResponseMaxBytes", NoEffect),
    ("toolSchemas", Use),
    ("tools", Use),
    ("toolsAllowed", Use),
    ("toolsCache", NoEffect),
    ("toolsDenied", Use),
    ("transport", Start),
    ("type", Start),
    ("url", Location),
    ("validateArguments", Use),
];

/// Settings at the root, and those under `defaults`.
const ROOT_SETTINGS: [(&str, SettingEffect); 39] = [
    ("$schema", NoEffect),
    ("agents", NoEffect),
    ("allowedHosts", Use),
    ("allowedOrigins", Use),
    ("autoOpen", NoEffect),
    ("cache", NoEffect),
    ("chains", NoEffect),
    ("corrections", Use),
    ("daemon", NoEffect),
    ("daemonIdleTimeout", NoEffect),
    ("defaults", NoEffect),
    ("expose", NoEffect),
    ("inputs", NoEffect),
    ("listTimeout", NoEffect),
    ("mcpInitConcurrency", NoEffect),
    ("mcpServers", NoEffect),
    ("messageLimits", NoEffect),
    ("openToolboxMaxBytes", NoEffect),
    ("openapiSpecs", NoEffect),
    ("pegboard", NoEffect),
    ("pinned", NoEffect),
    ("profiles", Use),
    ("progress", NoEffect),
    ("providers", NoEffect),
    ("questionTimeout", NoEffect),
    ("queues", NoEffect),
    ("restTools", NoEffect),
    ("start", NoEffect),
    ("telemetry", NoEffect),
    ("threads", NoEffect),
    ("toolNameMaxLength", NoEffect),
    ("toolOutput", NoEffect),
    ("toolResponseMaxBytes", NoEffect),
    ("toolTimeout", NoEffect),
    ("toolboxes", NoEffect),
    ("traceMCP", Use),
    ("tracePayloads", Use),
    ("transparent", Use),
    ("validateArguments", Use),
];

/// Returns the effect of a setting of a server, service or tool; `None` if there is no such setting.
pub(super) fn effect_of_entry_setting(name: &str) -> Option<SettingEffect> {
    find(&ENTRY_SETTINGS, name)
}

/// Returns the effect of a setting at the root; `None` if there is no such setting.
pub(super) fn effect_of_root_setting(name: &str) -> Option<SettingEffect> {
    find(&ROOT_SETTINGS, name)
}

fn find(settings: &[(&str, SettingEffect)], name: &str) -> Option<SettingEffect> {
    settings.iter().find(|(setting, _)| *setting == name).map(|(_, effect)| *effect)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_setting_of_the_schema_has_an_effect() {
        let schema = crate::native_schema();
        let names = |place: &Value| -> BTreeSet<String> {
            place["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let entries = ["McpServer", "OpenApiSpec", "RestTool"];
        let of_entries = entries.iter().flat_map(|entry| names(&schema["$defs"][*entry])).collect();
        let mut of_root = names(&schema);
        of_root.extend(names(&schema["$defs"]["Defaults"]));
        for (known, settings) in [(&ENTRY_SETTINGS[..], of_entries), (&ROOT_SETTINGS[..], of_root)] {
            let known: BTreeSet<String> = known.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(known, settings, "give a new setting an effect, and remove that of an old one");
        }
    }
}
