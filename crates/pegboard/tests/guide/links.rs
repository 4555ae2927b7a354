//! Links between pages.

use std::path::Path;

/// Broken links of a page.
pub(crate) fn broken(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("the page can be read");
    let folder = page.parent().expect("it is in a folder");
    let is_broken = |link: &&str| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { page.to_owned() } else { folder.join(file) };
        !target.exists() || !heading.is_empty() && !has_heading(&target, heading)
    };
    links(&text).filter(is_broken).map(|link| format!("{}: {link}", page.display())).collect()
}

/// Link targets of a text within the project.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("](").skip(1);
    let links = after.filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    links.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
}

fn has_heading(page: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(page).expect("the page can be read");
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == wanted)
}

/// Anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn a_link_to_a_missing_page_or_heading_is_broken() {
    let folder = tempfile::tempdir().expect("there is room");
    let page = folder.path().join("a.md");
    let text =
        "# One, two `three`\n[a](#one-two-three) [b](a.md) [c](https://example.org) [d](b.md) [e](a.md#four)";
    std::fs::write(&page, text).expect("there is room");
    let broken: Vec<String> =
        broken(&page).iter().filter_map(|line| Some(line.rsplit_once(": ")?.1.to_owned())).collect();
    assert_eq!(broken, ["b.md", "a.md#four"]);
}
