//! The file in a data directory that says where its process listens for operators.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use ops_api::{Client, ClientError, ProcessId, Request};
use serde::{Deserialize, Serialize};

use super::this_operator;

const FILE: &str = "ops.address";
const NEW_FILE: &str = "ops.address.new";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    address: SocketAddr,
    process: String,
    pid: u32,
}

/// Goes with the process, unless that is killed.
#[derive(Debug)]
pub struct AddressFile(PathBuf);

/// Who serves a directory, as far as its file tells.
#[derive(Debug)]
pub enum Standing {
    Served(Client),
    /// The file is there, and nobody answers who wrote it.
    Stale {
        pid: u32,
    },
    Nobody,
}

impl AddressFile {
    /// Replaces the file of a process that was killed: whoever calls this has the directory's lock.
    pub fn write(directory: &Path, address: SocketAddr, own: &ProcessId) -> Result<AddressFile> {
        let written = Written {
            address,
            process: own.0.clone(),
            pid: std::process::id(),
        };
        let text = serde_json::to_string(&written).expect("texts and numbers always become JSON");
        let (new, path) = (directory.join(NEW_FILE), directory.join(FILE));
        let put = fs::write(&new, text + "\n").and_then(|()| fs::rename(&new, &path));
        put.map_err(|error| anyhow!("{} cannot be written: {error}", path.display()))?;
        Ok(AddressFile(path))
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            let path = self.0.display();
            tracing::warn!(%path, %error, "the address for operators cannot be taken back");
        }
    }
}

/// Asks whoever the file names.
pub fn standing(directory: &Path) -> Result<Standing> {
    let path = directory.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Standing::Nobody);
        }
        Err(error) => return Err(anyhow!("{} cannot be read: {error}", path.display())),
    };
    let written: Written = serde_json::from_str(&text).map_err(|error| {
        let path = path.display();
        anyhow!("{path} is no address ({error}): remove it, and restart who serves the directory")
    })?;
    let process = ProcessId(written.process);
    let client = Client::new(written.address, process, this_operator());
    match client.ask(&Request::Shards) {
        Err(ClientError::Gone { .. }) => Ok(Standing::Stale { pid: written.pid }),
        // Whatever it says, it is the one.
        Ok(_) | Err(ClientError::Lost { .. } | ClientError::Refused(_)) => {
            Ok(Standing::Served(client))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_goes_with_its_process_and_a_stale_one_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert!(matches!(standing(at).unwrap(), Standing::Nobody));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let file = AddressFile::write(at, address, &ProcessId("a1".to_owned())).unwrap();
        let pid = std::process::id();
        let found = standing(at).unwrap();
        assert!(
            matches!(found, Standing::Stale { pid: told } if told == pid),
            "{found:?}"
        );
        drop(file);
        assert!(matches!(standing(at).unwrap(), Standing::Nobody));
        fs::write(at.join(FILE), "{}").unwrap();
        let refusal = standing(at).unwrap_err().to_string();
        assert!(refusal.contains("remove it"), "{refusal}");
    }
}
