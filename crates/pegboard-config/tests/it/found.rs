//! Default locations of configuration files.

use pegboard_config::{ConfigurationError, Layers, find};

use super::layers::folder;

#[test]
fn the_first_existing_name_wins() {
    let folder = tempfile::tempdir().unwrap();
    let found = || find(folder.path(), &|_| None).unwrap().file_name().unwrap().to_owned();
    for name in ["workbench.json", "workbench-config.json", "pegboard.toml", "pegboard.json", "pegboard.yaml"]
    {
        std::fs::write(folder.path().join(name), "{}").unwrap();
        assert_eq!(found(), name);
    }
}

#[test]
fn a_variable_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pegboard.yaml"), "{}").unwrap();
    let named = |name: &str| (name == "WORKBENCH_CONFIG").then(|| "mine.json".to_owned());
    assert_eq!(find(folder.path(), &named).unwrap(), folder.path().join("mine.json"));
    assert!(find(folder.path(), &|_| Some(String::new())).unwrap().ends_with("pegboard.yaml"));
}

#[test]
fn a_directory_without_a_configuration_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let error = find(folder.path(), &|_| None).unwrap_err();
    assert!(matches!(error, ConfigurationError::NoConfiguration { .. }));
    assert!(error.to_string().contains("Create a pegboard.yaml"));
}

#[test]
fn parent_directories_are_searched_up_to_the_repository_or_home() {
    let place = folder(&[
        ("home/pegboard.yaml", ""),
        ("home/repository/.git", ""),
        ("home/repository/deep/down/x", ""),
        ("home/other/deep/x", ""),
        ("pegboard.yaml", ""),
        ("elsewhere/x", ""),
    ]);
    let at = |name: &str| place.path().join(name);
    let environment = |name: &str| (name == "HOME").then(|| at("home").display().to_string());
    let found = |folder: &str| pegboard_config::find(&at(folder), &environment).ok();
    assert_eq!(found("home/other/deep"), Some(at("home/pegboard.yaml")));
    // The repository is the project.
    assert_eq!(found("home/repository/deep/down"), None);
    std::fs::write(at("home/repository/pegboard.toml"), "").unwrap();
    assert_eq!(found("home/repository/deep/down"), Some(at("home/repository/pegboard.toml")));
    // Files above may be written by other users.
    assert_eq!(found("elsewhere"), None);
}

#[test]
fn the_user_file_is_in_the_settings_directory() {
    let place = folder(&[
        ("home/.config/pegboard/pegboard.json", ""),
        ("xdg/pegboard/pegboard.toml", ""),
        ("xdg/pegboard/pegboard.yml", ""),
    ]);
    let at = |name: &str| place.path().join(name);
    let found = |variables: &[(&str, &str)]| {
        pegboard_config::find_user(&|name| {
            let (_, folder) = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(if folder.is_empty() { String::new() } else { at(folder).display().to_string() })
        })
    };
    assert_eq!(found(&[("HOME", "home")]), Some(at("home/.config/pegboard/pegboard.json")));
    assert_eq!(found(&[("HOME", "home"), ("XDG_CONFIG_HOME", "")]), found(&[("HOME", "home")]));
    assert_eq!(found(&[("HOME", "home"), ("XDG_CONFIG_HOME", "xdg")]), Some(at("xdg/pegboard/pegboard.yml")));
    assert_eq!(found(&[("APPDATA", "xdg")]), Some(at("xdg/pegboard/pegboard.yml")));
    assert_eq!(found(&[("HOME", "elsewhere")]), None);
}

#[test]
fn the_default_layers_are_the_user_and_the_project_file() {
    let place = folder(&[
        ("home/.config/pegboard/pegboard.yaml", "toolTimeout: 1m"),
        ("project/pegboard.yaml", "mcpServers: {}"),
        ("empty/x", ""),
    ]);
    let at = |name: &str| place.path().join(name);
    let environment = |name: &str| (name == "HOME").then(|| at("home").display().to_string());
    let discovered = |folder: &str, named: &[std::path::PathBuf]| {
        let layers = Layers::discover(&at(folder), named, &environment).unwrap();
        let shown = |path: &std::path::Path| path.strip_prefix(place.path()).unwrap().display().to_string();
        layers.files().into_iter().map(shown).collect::<Vec<_>>()
    };
    let user = "home/.config/pegboard/pegboard.yaml";
    assert_eq!(discovered("project", &[]), [user, "project/pegboard.yaml"]);
    assert_eq!(discovered("empty", &[]), [user]);
    assert_eq!(discovered("project", &[at("other.json")]), [user, "other.json"]);
    assert_eq!(discovered("home/.config/pegboard", &[]), [user]);
    assert!(Layers::discover(&at("empty"), &[], &|_| None).is_err());
}
