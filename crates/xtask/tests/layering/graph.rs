//! The workspace as the rules see it, and how it is read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub packages: Vec<Package>,
}

#[derive(Debug, Clone, Default)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
    pub sources: Vec<Source>,
}

#[derive(Debug, Clone)]
pub struct Dependency {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What the crate itself is made of, build scripts included.
    Normal,
    Development,
}

#[derive(Debug, Clone)]
pub struct Source {
    /// From the root of the package, with `/`.
    pub path: String,
    pub text: String,
    /// The root file of the library or of a binary.
    pub is_root: bool,
}

impl Graph {
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    pub fn of_this_workspace() -> Self {
        let output = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .output()
            .expect("cargo starts: it runs this test");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata: Metadata = serde_json::from_slice(&output.stdout)
            .expect("cargo metadata keeps its format version 1");
        Self {
            packages: metadata.packages.into_iter().map(Package::from).collect(),
        }
    }
}

impl Package {
    pub fn uses(&self, name: &str) -> bool {
        self.normal().any(|dependency| dependency == name)
    }

    pub fn normal(&self) -> impl Iterator<Item = &str> {
        self.dependencies
            .iter()
            .filter(|dependency| dependency.kind == Kind::Normal)
            .map(|dependency| dependency.name.as_str())
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<MetadataDependency>,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl From<MetadataPackage> for Package {
    fn from(package: MetadataPackage) -> Self {
        let folder = package
            .manifest_path
            .parent()
            .expect("a manifest lies in a folder");
        let roots: Vec<_> = package
            .targets
            .iter()
            .filter(|target| {
                target
                    .kind
                    .iter()
                    .any(|kind| kind.ends_with("lib") || kind == "bin")
            })
            .map(|target| target.src_path.clone())
            .collect();
        let mut sources = Vec::new();
        read_sources(folder, &folder.join("src"), &roots, &mut sources);
        let dependencies = package
            .dependencies
            .into_iter()
            .map(|dependency| Dependency {
                kind: match dependency.kind.as_deref() {
                    Some("dev") => Kind::Development,
                    _ => Kind::Normal,
                },
                name: dependency.name,
            });
        Self {
            dependencies: dependencies.collect(),
            name: package.name,
            sources,
        }
    }
}

fn read_sources(package: &Path, folder: &Path, roots: &[PathBuf], sources: &mut Vec<Source>) {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the folder of sources can be listed")
        .map(|entry| entry.expect("the folder of sources can be listed").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read_sources(package, &path, roots, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(Source {
                path: path
                    .strip_prefix(package)
                    .expect("sources were found under their package")
                    .to_string_lossy()
                    .replace('\\', "/"),
                text: fs::read_to_string(&path).expect("a source can be read as UTF-8"),
                is_root: roots.contains(&path),
            });
        }
    }
}
