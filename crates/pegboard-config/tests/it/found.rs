//! Where a configuration is found.

use pegboard_config::{ConfigurationError, find};

#[test]
fn the_first_name_that_is_there_wins() {
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
fn a_folder_without_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = find(folder.path(), &|_| None).unwrap_err();
    assert!(matches!(error, ConfigurationError::NoneFound { .. }));
    assert!(error.to_string().contains("Write a pegboard.yaml"));
}

#[test]
fn the_folders_of_a_repository_are_climbed_and_no_others() {
    let above = tempfile::tempdir().unwrap();
    let repository = above.path().join("repository");
    let deep = repository.join("src").join("deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(above.path().join("pegboard.yaml"), "{}").unwrap();
    std::fs::write(repository.join("pegboard.json"), "{}").unwrap();
    assert!(find(&deep, &|_| None).is_err());
    std::fs::create_dir(repository.join(".git")).unwrap();
    assert_eq!(find(&deep, &|_| None).unwrap(), repository.join("pegboard.json"));
    std::fs::write(deep.join("pegboard.toml"), "").unwrap();
    assert_eq!(find(&deep, &|_| None).unwrap(), deep.join("pegboard.toml"));
}
