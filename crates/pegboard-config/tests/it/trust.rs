//! Actions of files, changes that wait for approval, and the record of trusted files.

use std::path::Path;

use pegboard_config::trust::{
    ApprovedConfiguration, FileAction, FileOrigin, HeldChange, TrustError, TrustStore,
};
use pegboard_config::{Configuration, Layers, ServerEntry, SourceSelection, load_layers};
use pegboard_core::settings::ServerSettings;
use serde_json::{Value, json};

/// Loads a file with this content.
fn load(path: &Path, origin: FileOrigin, content: &Value) -> Configuration {
    std::fs::write(path, content.to_string()).unwrap();
    let folder = path.parent().unwrap();
    let layers = Layers::new(folder).part_from(origin, path, SourceSelection::default());
    load_layers(&layers, &|_| None).unwrap()
}

/// Returns the changes from one content to another that need approval, and what is left after they are taken back.
fn review(
    origin: FileOrigin,
    before: &Value,
    after: &Value,
    is_trusted: bool,
) -> (Vec<HeldChange>, Configuration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pegboard.json");
    let approved = ApprovedConfiguration::new(&load(&path, origin, before));
    let mut configuration = load(&path, origin, after);
    let held = approved.review(&configuration, &|_| is_trusted);
    approved.take_back(&mut configuration, &held);
    let next = approved.after(&configuration, &held);
    let again = load(&path, origin, after);
    assert_eq!(next.review(&again, &|_| is_trusted), held, "a change waits until it is approved");
    let reverted = next.review(&load(&path, origin, before), &|_| is_trusted);
    assert!(held.is_empty() || reverted.is_empty(), "the old form is approved: {reverted:?}");
    (held, configuration)
}

fn servers(server: &Value) -> Value {
    json!({"mcpServers": {"s": server}})
}

#[test]
fn programs_wait_for_approval_wherever_they_are() {
    let program = json!({"command": "a", "args": ["b"], "env": {"C": "d"}});
    let with = |key: &str, value: Value| {
        let mut program = program.clone();
        program[key] = value;
        servers(&program)
    };
    let before = servers(&program);
    let off = with("enabled", json!(false));
    let url = servers(&json!({"url": "https://example.com/mcp"}));
    for (before, after, reason) in [
        (&before, &before, None),
        (&before, &with("startTimeout", json!("5s")), None),
        (&before, &with("start", json!("eager")), None),
        (&before, &json!({"mcpServers": {}}), None),
        (&before, &off, None),
        (&before, &with("command", json!(["a", "b"])), Some("changed arguments")),
        (&before, &with("command", json!("other")), Some("changed command")),
        (&before, &with("args", json!(["b", "c"])), Some("changed arguments")),
        (&before, &with("env", json!({"C": "e"})), Some("changed environment")),
        (&before, &with("cwd", json!("/srv")), Some("changed folder")),
        (&json!({"mcpServers": {}}), &before, Some("new")),
        (
            &json!({"toolTimeout": "7s"}),
            &json!({"toolboxes": {"t": {"mcpServers": {"s": program}}}}),
            Some("new"),
        ),
        (&off, &before, Some("changed transport")),
        (&url, &before, Some("changed transport")),
    ] {
        for origin in [FileOrigin::Named, FileOrigin::User, FileOrigin::Project] {
            let (held, _) = review(origin, before, after, false);
            let reasons: Vec<String> = held.iter().map(|change| change.reason.to_string()).collect();
            assert_eq!(reasons.first().map(String::as_str), reason, "{origin:?}: {before} to {after}");
            let (held, _) = review(origin, before, after, true);
            assert_eq!(held, [], "what the user has allowed needs no approval: {after}");
        }
    }
}

/// Returns the reasons for which changes of a file wait.
fn reasons(origin: FileOrigin, before: &Value, after: &Value) -> String {
    let (held, _) = review(origin, before, after, false);
    let shown = |change: &HeldChange| format!("{} {}", change.target, change.reason);
    held.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[test]
fn filters_and_settings_of_access_wait_in_project_files() {
    let program = servers(&json!({"command": "a"}));
    let with = |key: &str, value: Value| {
        let mut after = program.clone();
        after[key] = value;
        after
    };
    for (after, expected) in [
        (servers(&json!({"command": "a", "toolsDenied": ["x"]})), "s changed tools"),
        (servers(&json!({"command": "a", "toolFilters": ["x"]})), "s changed tools"),
        (servers(&json!({"command": "a", "cacheScope": "global"})), "s changed tools"),
        (with("allowedOrigins", json!(["https://a.example"])), "access new"),
        (with("allowedHosts", json!(["a.example"])), "access new"),
        (with("profiles", json!({"p": {"expose": "flat"}})), "access new"),
        (with("defaults", json!({"tracePayloads": true})), "access new"),
        (with("telemetry", json!({"otlpEndpoint": "http://a.example:4318"})), "telemetry new"),
        (with("toolTimeout", json!("7s")), ""),
    ] {
        assert_eq!(reasons(FileOrigin::Project, &program, &after), expected, "{after}");
        assert_eq!(reasons(FileOrigin::Named, &program, &after), "", "{after}");
        let (_, configuration) = review(FileOrigin::Project, &program, &after, false);
        assert_eq!(configuration.gateway.allowed_origins.len(), 0, "{after}");
        assert!(!configuration.settings.trace_payloads, "{after}");
        let ServerEntry::Mcp { tools, .. } = &configuration.toolboxes["default"].servers["s"] else {
            panic!("it is a server")
        };
        assert_eq!(**tools, ServerSettings::default(), "the old form stays in use: {after}");
    }
}

/// Writes an entry with a URL and headers.
type WriteEntry<'w> = &'w dyn Fn(&str, &Value) -> Value;

#[test]
fn secrets_for_another_origin_wait_in_every_file() {
    let key = json!({"X-Key": "k"});
    let mcp = |url: &str, headers: &Value| json!({"mcpServers": {"s": {"url": url, "headers": headers}}});
    let rest = |url: &str, headers: &Value| json!({"restTools": {"s": {"description": "R", "method": "GET", "url": url, "headers": headers}}});
    let service = |url: &str, headers: &Value| json!({"openapiSpecs": {"s": {"spec": "api.json", "baseUrl": url, "headers": headers}}});
    let model = |url: &str, headers: &Value| json!({"providers": {"s": {"type": "openai-compatible", "baseUrl": url, "headers": headers}}});
    let token = |url: &str, _: &Value| {
        let credential = json!({"clientId": "i", "clientSecret": "s3cret", "tokenUrl": url});
        json!({"openapiSpecs": {"s": {"spec": "api.json", "credentials": {"oauth": credential}}}})
    };
    let (one, path, other) = ("https://one.example/a", "https://one.example/b", "https://other.example/a");
    for write in [&mcp as WriteEntry<'_>, &rest, &service, &model, &token] {
        for origin in [FileOrigin::Named, FileOrigin::User] {
            let waits = |before: &Value, after: &Value| !reasons(origin, before, after).is_empty();
            let before = write(one, &key);
            assert!(waits(&before, &write(other, &key)), "{before}");
            assert!(waits(&json!({}), &before), "{before}");
            assert!(!waits(&before, &write(path, &key)), "{before}");
            assert!(!waits(&before, &write(one, &json!({"X-Key": "other"}))), "{before}");
        }
    }
    let variable = json!({"mcpServers": {"s": {"url": "https://other.example/${file:key}"}}});
    assert_eq!(reasons(FileOrigin::Named, &json!({}), &variable), "", "an unusable entry sends nothing");
}

#[test]
fn requests_wait_only_in_project_files() {
    let before = json!({"mcpServers": {"s": {"command": "a"}}});
    for (section, entry) in [
        ("mcpServers", json!({"url": "https://example.com/mcp"})),
        ("restTools", json!({"description": "R", "method": "GET", "url": "https://example.com/"})),
        ("openapiSpecs", json!({"spec": "https://example.com/openapi.json"})),
        ("providers", json!({"type": "openai-compatible", "baseUrl": "https://example.com"})),
    ] {
        let mut after = before.clone();
        after[section]["new"] = entry;
        for (origin, is_held) in
            [(FileOrigin::Named, false), (FileOrigin::User, false), (FileOrigin::Project, true)]
        {
            let (held, configuration) = review(origin, &before, &after, false);
            assert_eq!(!held.is_empty(), is_held, "{origin:?} {section}");
            let toolbox = &configuration.toolboxes["default"];
            let n_entries = toolbox.servers.len() + toolbox.rest_tools.len() + configuration.providers.len();
            assert_eq!(n_entries, if is_held { 1 } else { 2 }, "{origin:?} {section}");
        }
    }
}

#[test]
fn an_environment_from_other_files_waits_too() {
    for (entry, file) in [
        (json!({"command": "a", "envFile": "more.env"}), "more.env"),
        (json!({"command": "a", "env": {"KEY": "${file:key}"}}), "key"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pegboard.json");
        std::fs::write(folder.path().join(file), "A=1").unwrap();
        let approved = ApprovedConfiguration::new(&load(&path, FileOrigin::Named, &servers(&entry)));
        std::fs::write(folder.path().join(file), "A=2").unwrap();
        let held = approved.review(&load(&path, FileOrigin::Named, &servers(&entry)), &|_| false);
        assert_eq!(held[0].reason.to_string(), "changed environment", "{file}");
    }
}

#[test]
fn the_variables_of_an_env_file_are_shown_to_the_user_who_decides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pegboard.json");
    std::fs::write(folder.path().join(".env"), "PATH=./evil:/bin\nTOKEN='s 3'\n").unwrap();
    let server = servers(&json!({"command": "git-mcp", "envFile": ".env"}));
    let action = load(&path, FileOrigin::Project, &server).actions.remove(0);
    assert_eq!(action.summary, "git-mcp (env from .env), which sets PATH, TOKEN");
    assert_eq!(action.as_written, "git-mcp (env from .env), which sets PATH=./evil:/bin, TOKEN='s 3'");
}

/// Actions of numbered files.
fn actions(folder: &Path, n_files: usize, n_actions: usize) -> Vec<FileAction> {
    let path = folder.join("pegboard.json");
    let action = load(&path, FileOrigin::Project, &servers(&json!({"command": "a"}))).actions.remove(0);
    let numbers = (0..n_files).flat_map(|file| (0..n_actions).map(move |number| (file, number)));
    let action = |(file, number): (usize, usize)| FileAction {
        file: folder.join(format!("{file}.json")),
        digest: format!("{file}-{number}"),
        ..action.clone()
    };
    numbers.map(action).collect()
}

#[test]
fn the_record_of_trusted_files_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let files = actions(folder.path(), 1_001, 1);
    TrustStore::trust(&state, None, &files).unwrap();
    let store = TrustStore::open(&state, None).unwrap();
    assert_eq!(
        (store.files().len(), store.is_trusted(&files[0]), store.is_trusted(&files[1])),
        (1_000, false, true)
    );

    let many = actions(folder.path(), 1, 2_001);
    assert!(matches!(TrustStore::trust(&state, None, &many), Err(TrustError::TooManyActions { .. })));
    TrustStore::trust(&state, None, &many[..2_000]).unwrap();
    TrustStore::trust_more(&state, None, &many[2_000..]).unwrap();
    let store = TrustStore::open(&state, None).unwrap();
    assert_eq!((store.is_trusted(&many[0]), store.is_trusted(&many[2_000])), (false, true));
}

#[test]
fn writers_of_the_record_do_not_lose_each_others_files() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let files = actions(folder.path(), 16, 1);
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| TrustStore::trust_more(&state, None, std::slice::from_ref(file)).unwrap());
        }
    });
    let store = TrustStore::open(&state, None).unwrap();
    assert!(files.iter().all(|file| store.is_trusted(file)));
    let revoked = TrustStore::revoke(&state, None, &[files[3].file.clone()]).unwrap();
    assert_eq!(revoked, [files[3].file.clone()]);
    assert!(!TrustStore::open(&state, None).unwrap().is_trusted(&files[3]));
}

/// A change of the record on behalf of a user.
#[cfg(unix)]
type RecordChange = fn(&Path, pegboard_config::trust::FileOwner, &FileAction) -> Result<(), TrustError>;

/// Every way to change the record.
#[cfg(unix)]
const CHANGES: [(&str, RecordChange); 3] = [
    ("trust", |state, owner, action| TrustStore::trust(state, Some(owner), std::slice::from_ref(action))),
    ("trust_more", |state, owner, action| {
        TrustStore::trust_more(state, Some(owner), std::slice::from_ref(action))
    }),
    ("revoke", |state, owner, action| {
        TrustStore::revoke(state, Some(owner), std::slice::from_ref(&action.file)).map(drop)
    }),
];

#[cfg(unix)]
#[test]
fn a_record_that_others_could_have_written_is_not_taken_over() {
    use pegboard_config::trust::FileOwner;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    let folder = tempfile::tempdir().unwrap();
    let uid = std::fs::metadata(folder.path()).unwrap().uid();
    let own = FileOwner { uid, private_group: None };
    // Only root can give a file away, and files of root are accepted.
    let (other, new_owner) =
        if uid == 0 { (own, Some(65_534)) } else { (FileOwner { uid: uid + 1, ..own }, None) };
    for (owner, mode, new_uid) in [(own, 0o666, None), (own, 0o620, None), (other, 0o600, new_owner)] {
        for (name, change) in CHANGES {
            let state = folder.path().join(format!("{name}-{mode:o}"));
            let [planted, mine] = <[FileAction; 2]>::try_from(actions(folder.path(), 2, 1)).unwrap();
            TrustStore::trust(&state, None, &[planted]).unwrap();
            let record = state.join("trust.json");
            std::fs::set_permissions(&record, std::fs::Permissions::from_mode(mode)).unwrap();
            chown(&record, new_uid, None).unwrap();
            let before = std::fs::read_to_string(&record).unwrap();
            let result = change(&state, owner, &mine);
            assert!(matches!(result, Err(TrustError::Unsafe { .. })), "{name} {mode:o}: {result:?}");
            assert_eq!(std::fs::read_to_string(&record).unwrap(), before, "{name} {mode:o}");
        }
    }
}
