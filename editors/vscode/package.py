"""Packs the extension: python3 package.py OUT.vsix

A .vsix is a zip archive with the extension's folder, a manifest and the types of its files. The same files give the same
bytes.
"""

import json
import pathlib
import sys
import xml.sax.saxutils
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["package.json", "language-configuration.json", "extension.js", "syntaxes/tile.tmLanguage.json"]
TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension=".json" ContentType="application/json"/><Default Extension=".vsixmanifest" ContentType="text/xml"/><Default Extension=".js" ContentType="application/javascript"/></Types>
"""
MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id="{name}" Version="{version}" Publisher="{publisher}"/>
    <DisplayName>{displayName}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Categories>Programming Languages</Categories>
    <Properties><Property Id="Microsoft.VisualStudio.Code.Engine" Value="{engine}"/></Properties>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets><Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/></Assets>
</PackageManifest>
"""


def manifest():
    package = json.loads((HERE / "package.json").read_text())
    fields = {name: xml.sax.saxutils.escape(str(value)) for name, value in package.items()}
    return MANIFEST.format(engine=package["engines"]["vscode"], **fields)


def main():
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
        entries = [("[Content_Types].xml", TYPES), ("extension.vsixmanifest", manifest())]
        entries += [(f"extension/{name}", (HERE / name).read_text()) for name in FILES]
        for name, text in entries:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)


main()
