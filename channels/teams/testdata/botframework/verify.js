// Asks Microsoft's own verifier about each request that stands on standard input, and writes
// why it refuses it, or null, in the same order.
'use strict';

const { ChannelValidation, JwtTokenValidation, SimpleCredentialProvider } = require('botframework-connector');

// The library tells on standard error what it thinks of each token.
console.error = () => {};

async function verify({ appId, metadata, requests }) {
  ChannelValidation.OpenIdMetadataEndpoint = metadata;
  const credentials = new SimpleCredentialProvider(appId, '');
  const answers = [];
  for (const { authorization, activity, now } of requests) {
    Date.now = () => now * 1000;
    try {
      await JwtTokenValidation.authenticateRequest(activity, authorization, credentials, '');
      answers.push(null);
    } catch (err) {
      answers.push(String(err.message));
    }
  }
  return answers;
}

let input = '';
process.stdin.on('data', (chunk) => { input += chunk; });
process.stdin.on('end', () => {
  verify(JSON.parse(input)).then(
    (answers) => process.stdout.write(JSON.stringify(answers)),
    (err) => { process.exitCode = 1; process.stderr.write(String(err.stack)); },
  );
});
